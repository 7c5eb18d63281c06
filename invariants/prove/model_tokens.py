"""Tokens of tapes as tokens of a model.

A tape's prompts use few tokens, and many times the same one in a row. Here the model's token also
depends on the position and the namespace, so that pages that are not the same seldom look alike.
Equal prefixes of one namespace stay equal, and other tokens at a position stay other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from zlib import crc32

_TOKEN, _POSITION = 31, 7  # primes to the vocabulary


def model_tokens(tokens: Sequence[int], namespace: str, vocabulary: int) -> list[int]:
    """The tokens of a model for those of a tape."""
    start = crc32(namespace.encode()) if namespace else 0
    return [
        (token * _TOKEN + position * _POSITION + start) % vocabulary
        for position, token in enumerate(tokens)
    ]
