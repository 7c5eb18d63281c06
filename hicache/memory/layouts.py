"""Layouts: the order of the axes in a pool's buffer.

A pool has six dimensions: layer, page, part (K, V or latent), token, head, and the bytes of a head.
A layout is the order of the first five in a buffer, slowest first. The heads of a token are one
contiguous row in every layout but page_head.

    layer_first        layer, part, page, token, head   what attention reads; every device pool
    page_first         page, layer, token, part, head   a page is contiguous, K and V interleaved
    page_first_direct  page, layer, part, token, head   a page is contiguous, and so is each part of
                                                        a layer in it
    page_head          page, head, layer, part, token   a page is contiguous, and so is each head in
                                                        it: the pages of all TP ranks, one after the
                                                        other, are the page of TP=1

In any layout, a copy uses `canonical` views of shape (layer, page, part, token, head, bytes of a
head), so pages can be copied between any two layouts. `pools` allocates the memory.
"""

from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Pages

Bytes: TypeAlias = NDArray[np.uint8]

CANONICAL = ("layer", "page", "part", "token", "head")
LAYOUTS = {
    "layer_first": ("layer", "part", "page", "token", "head"),
    "page_first": ("page", "layer", "token", "part", "head"),
    "page_first_direct": ("page", "layer", "part", "token", "head"),
    "page_head": ("page", "head", "layer", "part", "token"),
}
BACKENDS = ("kernel", "direct")
# Why `direct`, which makes one plain copy per part of a layer, cannot copy a layout.
_CUT = {
    "page_first": "whose K and V of a token are interleaved",
    "page_head": "whose heads of a token are apart",
}


class Sizes(NamedTuple):
    """The length of each axis, and the bytes of one head in a row."""

    layer: int
    page: int
    part: int
    token: int
    head: int
    head_bytes: int


def check(layout: str, backend: str) -> None:
    """Raises CallerError for unknown names, and for `direct` with a layout that it cannot copy.

    `direct` issues plain copies of whole parts, so on both sides a page's part of a layer must be
    contiguous and in the same order. `kernel` gathers and scatters, so it can copy any layout.
    """
    for name, value, known in (("layout", layout, LAYOUTS), ("io_backend", backend, BACKENDS)):
        if value not in known:
            raise CallerError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
    if backend == "direct" and layout in _CUT:
        raise CallerError(
            f"io_backend: direct cannot copy {layout}, {_CUT[layout]}; use layout "
            f"page_first_direct or layer_first, or io_backend kernel"
        )


def legal() -> tuple[tuple[str, str], ...]:
    """Every pair (layout, backend) that `check` accepts."""
    return tuple(
        (layout, backend)
        for layout in LAYOUTS
        for backend in BACKENDS
        if backend == "kernel" or layout not in _CUT
    )


def shape(layout: str, sizes: Sizes) -> tuple[int, ...]:
    """The six dimensions of a buffer, in the layout's order, with the bytes of a head last."""
    return (*(getattr(sizes, axis) for axis in LAYOUTS[layout]), sizes.head_bytes)


def axes(layout: str) -> tuple[int, ...]:
    """The permutation (numpy's `transpose`, torch's `permute`) from the buffer to canonical."""
    order = LAYOUTS[layout]
    return (*(order.index(axis) for axis in CANONICAL), len(order))


def canonical(buffer: Bytes, layout: str) -> Bytes:
    """A view of a buffer in canonical order. Copies nothing."""
    return buffer.transpose(axes(layout))


def run_bytes(layout: str, sizes: Sizes) -> int:
    """Contiguous bytes of one page: the whole page, or in layer_first one part of one layer."""
    row = sizes.token * sizes.head * sizes.head_bytes
    return row if layout == "layer_first" else row * sizes.layer * sizes.part


def copy_kernel(
    source: Bytes, source_pages: Pages, target: Bytes, target_pages: Pages, layers: range
) -> None:
    """Copy pages between canonical views: one gather and scatter of all pages per layer."""
    for layer in layers:
        target[layer, target_pages] = source[layer, source_pages]


def copy_direct(
    source: Bytes, source_pages: Pages, target: Bytes, target_pages: Pages, layers: range
) -> None:
    """Copy the same bytes as plain slices. Pages that are consecutive on both sides are one slice.

    numpy copies between slices without a temporary buffer, which it needs for lists of indices.
    """
    depth = slice(layers.start, layers.stop)
    for here, there, count in page_runs(source_pages, target_pages):
        target[depth, there : there + count] = source[depth, here : here + count]


def page_runs(source: Pages, target: Pages) -> list[tuple[int, int, int]]:
    """(first source page, first target page, count) for each run of pages that are consecutive on
    both sides."""
    if not len(source):
        return []
    cuts = np.flatnonzero((np.diff(source) != 1) | (np.diff(target) != 1)) + 1
    starts = np.concatenate(([0], cuts))
    counts = np.diff(np.concatenate((starts, [len(source)])))
    return list(zip(source[starts].tolist(), target[starts].tolist(), counts.tolist(), strict=True))


Words: TypeAlias = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def stamp(seeds: Words, pool: int, layers: range, parts: int, tokens: int, row_bytes: int) -> Bytes:
    """Page contents for tests, as a function of a 64-bit seed: the canonical bytes, uint8[layer,
    page, part, token, row], of one pool's pages.

    Each 8-byte word is a hash of (seed, pool, layer, part, token, place in the row). So a page in
    the wrong place, a swapped layer, or K in place of V gives different bytes, and two pages are
    equal if and only if their seeds are equal. The hash is the finalizer of SplitMix64 (Steele,
    Lea, Flood, OOPSLA 2014), which is a bijection of 64-bit words.

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
