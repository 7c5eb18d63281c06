"""Where a page's bytes are inside a pool's buffer: an order of axes, nothing more.

A pool is six-dimensional: layer, page, part (K, V or latent), token, head, and the bytes of a head.
A layout is the order in which a buffer keeps the first five, slowest first. The heads of a token
are one row, which only page_head cuts.

    layer_first        layer, part, page, token, head   what attention reads; every device pool
    page_first         page, layer, token, part, head   a page is one run, K and V side by side
    page_first_direct  page, layer, part, token, head   a page is one run, and each part of a layer
    page_head          page, head, layer, part, token   a page is one run, and each head in it: the
                                                        pages of all TP ranks end to end are TP=1's

Whatever the order, a copy sees `canonical` views of shape (layer, page, part, token, head, bytes of
a head), so any two layouts copy into one another. Must not live here: pools, tiers, threads.
"""

from __future__ import annotations

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
# Why `direct`, one plain copy per part of a layer, cannot serve a layout.
_CUT = {
    "page_first": "whose K and V of a token are interleaved",
    "page_head": "whose heads of a token are apart",
}


class Sizes(NamedTuple):
    """How many there are of each axis, and the bytes of a head's share of a row."""

    layer: int
    page: int
    part: int
    token: int
    head: int
    head_bytes: int


def check(layout: str, backend: str) -> None:
    """Raises CallerError for unknown names, and for `direct` where a part is not one run.

    `direct` issues plain copies of whole parts, so both sides must hold a page's part of a layer as
    one run in the same order; `kernel` gathers and scatters and takes any layout.
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
    """Every (layout, backend) that `check` lets pass."""
    return tuple(
        (layout, backend)
        for layout in LAYOUTS
        for backend in BACKENDS
        if backend == "kernel" or layout not in _CUT
    )


def shape(layout: str, sizes: Sizes) -> tuple[int, ...]:
    """The buffer's six dimensions: the layout's order, then the bytes of a head."""
    return (*(getattr(sizes, axis) for axis in LAYOUTS[layout]), sizes.head_bytes)


def axes(layout: str) -> tuple[int, ...]:
    """The permutation (numpy's `transpose`, torch's `permute`) from the buffer to canonical."""
    order = LAYOUTS[layout]
    return (*(order.index(axis) for axis in CANONICAL), len(order))


def canonical(buffer: Bytes, layout: str) -> Bytes:
    """A view of a buffer in the canonical order, whatever its layout. Copies nothing."""
    return buffer.transpose(axes(layout))


def run_bytes(layout: str, sizes: Sizes) -> int:
    """Bytes that one page has side by side: all of it, or one layer's part in layer_first."""
    row = sizes.token * sizes.head * sizes.head_bytes
    return row if layout == "layer_first" else row * sizes.layer * sizes.part


def copy_kernel(
    source: Bytes, source_pages: Pages, target: Bytes, target_pages: Pages, layers: range
) -> None:
    """Canonical view to canonical view: one gather and scatter of all pages per layer."""
    for layer in layers:
        target[layer, target_pages] = source[layer, source_pages]


def copy_direct(
    source: Bytes, source_pages: Pages, target: Bytes, target_pages: Pages, layers: range
) -> None:
    """The same bytes as plain slices: pages that follow one another on both sides go as one.

    Neither side may be a list of indices: numpy then copies each run of a slice where it lies,
    without a buffer in between.
    """
    depth = slice(layers.start, layers.stop)
    for here, there, count in page_runs(source_pages, target_pages):
        target[depth, there : there + count] = source[depth, here : here + count]


def page_runs(source: Pages, target: Pages) -> list[tuple[int, int, int]]:
    """(first source page, first target page, count) of pages that ascend together on both sides."""
    if not len(source):
        return []
    cuts = np.flatnonzero((np.diff(source) != 1) | (np.diff(target) != 1)) + 1
    starts = np.concatenate(([0], cuts))
    counts = np.diff(np.concatenate((starts, [len(source)])))
    return list(zip(source[starts].tolist(), target[starts].tolist(), counts.tolist(), strict=True))
