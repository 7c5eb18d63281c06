"""Random numbers by key: each number is a pure function of the seed and the key.

There is no stream of numbers, so removing one operation does not change the numbers of the others.
Integers only. The fuzzer needs many numbers per key and uses streams (invariants/fuzz/draws).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

Part: TypeAlias = int | str


def draw(bound: int, *parts: Part) -> int:
    """Returns an integer in 0..bound-1, the same for the same parts in every process."""
    text = "\x1f".join(f"i{part}" if isinstance(part, int) else f"s{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % bound
