"""Page content that identifies itself: it depends on the tokens up to the end of the page only.

    tag(i)      = mix(sum over k <= i of mix(words of row k . odd constants + position k)), so it
                  depends on every row up to i and on the namespace
    row(tag)[w] = mix(tag + salt(component, layer, w))

`mix` is the finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014), a bijection on 64 bits.
`draw` gives random numbers by key, so that removing one operation does not change the numbers of
the others.
"""

from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Key

Words: TypeAlias = NDArray[np.uint64]

ROW_WORDS = 2
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_R30, _R27, _R31 = np.uint64(30), np.uint64(27), np.uint64(31)


def mix(words: Words) -> Words:
    """Applies the finaliser of splitmix64 to each element."""
    shifted = words >> _R30
    mixed: Words = words ^ shifted
    mixed *= _FIRST
    np.right_shift(mixed, _R27, out=shifted)
    mixed ^= shifted
    mixed *= _SECOND
    np.right_shift(mixed, _R31, out=shifted)
    mixed ^= shifted
    return mixed


def _seed(*parts: str) -> int:
    text = "\x1f".join(parts).encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def prefix_tags(key: Key) -> Words:
    """Returns uint64[pages]: one tag for each page of the key."""
    pages = key.pages
    if not pages:
        return np.empty(0, dtype=np.uint64)
    width = 8 if key.stride % 8 == 0 else 1
    words = np.frombuffer(key.raw, dtype=f"<u{width}", count=pages * key.stride // width)
    rows = words.astype(np.uint64, copy=False).reshape(pages, key.stride // width)
    seed = _seed("namespace", key.namespace)
    factors = mix(np.arange(1, rows.shape[1] + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)
    position = np.arange(1, pages + 1, dtype=np.uint64) * _GOLDEN + np.uint64(seed)
    tags: Words = mix(np.cumsum(mix(rows @ factors + position), dtype=np.uint64) + position)
    return tags


def partial_tag(request: int, tokens: int) -> Words:
    """Returns uint64[1]: the tag of a page that is filled to `tokens` tokens of `request` only.

    A partial page is not shared, so its tag depends on the request.
    """
    return np.array([_seed("partial", str(request), str(tokens))], dtype=np.uint64)


def salts(component: str, layer: int) -> Words:
    """Returns uint64[ROW_WORDS]: constants that make rows of one tag differ by component and
    layer.
    """
    return np.array(
        [_seed("row", component, str(layer), str(word)) for word in range(ROW_WORDS)],
        dtype=np.uint64,
    )


Part: TypeAlias = int | str


def draw(bound: int, *parts: Part) -> int:
    """Returns an integer in 0..bound-1, the same for the same parts in every process."""
    text = "\x1f".join(f"i{part}" if isinstance(part, int) else f"s{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little") % bound
