"""Where a page's bytes are inside a pool's buffer: an order of axes, nothing more.

A pool is five-dimensional: layer, page, token, part (K, V or latent) and the bytes of a row. A
layout is the order in which a buffer keeps the first four, slowest first; a row is never cut.

    layer_first        layer, part, page, token   what attention kernels read; every device pool
    page_first         page, layer, token, part   a page is one run, K and V of a token side by side
    page_first_direct  page, layer, part, token   a page is one run, and so is each part of a layer

Whatever the order, a copy sees `canonical` views of shape (layer, page, part, token, row bytes), so
any two layouts copy into one another. Must not live here: pools, tiers, threads.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Pages

Bytes: TypeAlias = NDArray[np.uint8]

CANONICAL = ("layer", "page", "part", "token")
LAYOUTS = {
    "layer_first": ("layer", "part", "page", "token"),
    "page_first": ("page", "layer", "token", "part"),
    "page_first_direct": ("page", "layer", "part", "token"),
}
BACKENDS = ("kernel", "direct")


def check(layout: str, backend: str) -> None:
    """Raises CallerError for unknown names, and for `direct` where a part is not one run.

    `direct` issues one plain copy per page, layer and part, so both sides must hold that as one run
    in the same order; `kernel` gathers and scatters rows and takes any layout.
    """
    for name, value, known in (("layout", layout, LAYOUTS), ("io_backend", backend, BACKENDS)):
        if value not in known:
            raise CallerError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
    if backend == "direct" and layout == "page_first":
        raise CallerError(
            "io_backend: direct cannot copy page_first, whose K and V of a token are interleaved; "
            "use layout page_first_direct or layer_first, or io_backend kernel"
        )


def shape(layout: str, layers: int, pages: int, parts: int, tokens: int) -> tuple[int, ...]:
    """The buffer's first four dimensions in the layout's order."""
    sizes = {"layer": layers, "page": pages, "part": parts, "token": tokens}
    return tuple(sizes[axis] for axis in LAYOUTS[layout])


def canonical(buffer: Bytes, layout: str) -> Bytes:
    """A view of a buffer in the canonical order, whatever its layout. Copies nothing."""
    order = LAYOUTS[layout]
    return buffer.transpose([*(order.index(axis) for axis in CANONICAL), 4])


def byte_runs(view: Bytes, layer: int, page: int) -> list[tuple[int, int]]:
    """(offset, length) in the buffer of each part's runs, parts and tokens in canonical order.

    view: a canonical view of a whole buffer. Neighbouring rows are merged within a part, so a part
    that is contiguous is one run.
    """
    layer_step, page_step, part_step, token_step, _ = view.strides
    _, _, parts, tokens, row = view.shape
    start = layer * layer_step + page * page_step
    if token_step == row:
        return [(start + part * part_step, tokens * row) for part in range(parts)]
    return [
        (start + part * part_step + token * token_step, row)
        for part in range(parts)
        for token in range(tokens)
    ]


def copy_kernel(
    source: Bytes, source_pages: Pages, target: Bytes, target_pages: Pages, layers: range
) -> None:
    """Canonical view to canonical view: one gather and scatter of all pages per layer."""
    for layer in layers:
        target[layer, target_pages] = source[layer, source_pages]


def copy_direct(
    source: Bytes,
    source_flat: Bytes,
    source_pages: Pages,
    target: Bytes,
    target_flat: Bytes,
    target_pages: Pages,
    layers: range,
) -> None:
    """The same bytes moved run by run between the flat buffers behind the two views."""
    for layer in layers:
        for here, there in zip(source_pages.tolist(), target_pages.tolist(), strict=True):
            for (start, length), (goal, room) in zip(
                byte_runs(source, layer, here), byte_runs(target, layer, there), strict=True
            ):
                assert length == room, "direct copies need the same runs on both sides"
                target_flat[goal : goal + room] = source_flat[start : start + length]
