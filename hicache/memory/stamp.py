"""Page contents for tests: the bytes of a page as a function of a 64-bit seed.

Each 8-byte word is a hash of (seed, pool, layer, part, token, place in the row). So a page in the
wrong place, a swapped layer, or K in place of V gives different bytes, and two pages are equal if
and only if their seeds are equal. Does not choose seeds; the caller does.

The hash is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number
generators", OOPSLA 2014), which is a bijection of 64-bit words.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from .layouts import Bytes

Words: TypeAlias = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stamp(seeds: Words, pool: int, layers: range, parts: int, tokens: int, row_bytes: int) -> Bytes:
    """The canonical bytes, uint8[layer, page, part, token, row], of one pool's pages.

    seeds: uint64[pages]. pool: its number. layers: the pool's own layer indices."""
    words = -(-row_bytes // 8)
    place = np.arange(parts * tokens * words, dtype=np.uint64) + np.uint64(1)
    layer = np.array(layers, dtype=np.uint64) | np.uint64(pool << 32)
    roots = _mix(seeds[None, :] ^ _mix(layer + _GOLDEN)[:, None])
    filled = _mix(roots[:, :, None] + place * _GOLDEN).astype("<u8")
    rows = filled.reshape(len(layers), len(seeds), parts, tokens, words).view(np.uint8)
    return rows[..., :row_bytes]


def _mix(words: Words) -> Words:
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
