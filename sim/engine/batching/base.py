"""The interface of a way to compose passes, and its lookup.

A module of this folder defines `WITH_DECODING`, whether a pass with chunks of prompts decodes too,
and `budget(tokens, decoding)`, the tokens of a pass that chunks may have. Chunks are chosen before
a pass decodes, so one that does not decode too takes precedence over decoding. Does not choose
chunks (see prefill) or launch a pass (see engine).
"""

from __future__ import annotations

from typing import Protocol

from hicache import registry

from ...engine_profiles.base import BATCHING


class Batching(Protocol):
    """See the module."""

    WITH_DECODING: bool

    def budget(self, tokens: int, decoding: int) -> int:
        """Tokens that chunks may have in a pass of so many, while so many sequences decode."""


def make(name: str) -> Batching:
    """The way with that name. Raises CallerError for an unknown name."""
    found: Batching = registry.load(BATCHING, name)
    return found
