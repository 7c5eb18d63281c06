"""What logs share: hashes as integers, tokens as blocks, and requests that a log names twice.

Does not know the fields of any format.
"""

from __future__ import annotations

import hashlib
import re
from array import array

from . import base
from .base import Lines

_HEX = re.compile(r"(?:0x)?[0-9a-fA-F]{1,16}")
_MOST_HASH = 512  # characters


def number_of(lines: Lines, value: object, what: str) -> int:
    """A hash as an integer of 64 bits: itself if it fits, else a hash of it. what: the field."""
    if type(value) is int:
        return value
    if type(value) is not str or not 0 < len(value) <= _MOST_HASH:
        lines.wrong(f"{what} of text or integers", base.show(value), "correct the list")
    if _HEX.fullmatch(value):
        return int(value, 16)
    digest = hashlib.blake2b(value.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def blocks_of(tokens: array[int], size: int) -> array[int]:
    """The chained hashes of the whole blocks of these tokens. size: tokens of a block."""
    blocks = array("Q")
    digest = b""
    for start in range(0, len(tokens) - size + 1, size):
        part = tokens[start : start + size].tobytes()
        digest = hashlib.blake2b(digest + part, digest_size=8).digest()
        blocks.append(int.from_bytes(digest, "little"))
    return blocks


class Names:
    """The names that were seen, as short digests, so that a long name takes no more room."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, name: str) -> bool:
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()
        before = len(self._seen)
        self._seen.add(digest)
        return len(self._seen) > before

    def check(self, lines: Lines, name: str, field: str) -> None:
        """Raises CallerError if the name was seen before."""
        if not self.is_new(name):
            lines.wrong(
                f"{field}s that differ", f"{base.show(name)} again", "remove the repetition"
            )
