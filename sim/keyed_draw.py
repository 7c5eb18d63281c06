"""One random number per key: a draw is a pure function of the seed and of what it decides.

There is no stream, so leaving one operation out changes no draw of another. Integers only. The
fuzzer, which needs many numbers under one name, has streams (invariants/fuzz/draws).
"""

from __future__ import annotations

from hashlib import blake2b
from typing import TypeAlias

Part: TypeAlias = int | str


def draw(bound: int, *parts: Part) -> int:
    """An integer in 0..bound-1, the same for the same parts in every process.

    The bias of the reduction is below bound / 2**64.
    """
    text = "\x1f".join(f"i{part}" if isinstance(part, int) else f"s{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % bound
