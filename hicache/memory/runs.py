"""Where the bytes of pages are, as offsets: the arithmetic under every copy on an accelerator.

Lives here: pure functions of shapes and strides. `pair` finds the largest pieces that are whole on
both sides; `runs` lists them for given pages and merges neighbours. Must not live here: memory,
streams, or who copies.

A piece is contiguous on both sides and belongs to one page of one layer. What is left around it is
at most a few dimensions (parts, tokens, heads), each with a step per side.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CoreBug
from hicache.core.types import Pages

Offsets = NDArray[np.int64]


class Side(NamedTuple):
    """Byte steps of one side: from layer to layer, page to page, and along `Pair.sizes`."""

    layer: int
    page: int
    steps: tuple[int, ...]


class Pair(NamedTuple):
    """How the pages of two buffers correspond. length: bytes of a piece."""

    length: int
    sizes: tuple[int, ...]
    source: Side
    target: Side

    @property
    def pieces(self) -> int:
        """Pieces of one page in one layer."""
        return int(np.prod(self.sizes, dtype=np.int64))

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in one layer."""
        return self.length * self.pieces


class Runs(NamedTuple):
    """Copies to make, in ascending order of the source: byte offsets and lengths."""

    source: Offsets
    target: Offsets
    length: Offsets


def pair(shape: Sequence[int], source: Sequence[int], target: Sequence[int], largest: int) -> Pair:
    """The correspondence of two canonical views (layer, page, then anything, bytes last).

    shape: of a page's part, the dimensions after layer and page. source, target: byte strides of
    all dimensions, layer and page included. largest: bytes that a page is known to have side by
    side on both sides; more may be adjacent by chance of the sizes, with a border of registrations
    in between. Raises CoreBug where the last dimension is no row.
    """
    if source[-1] != 1 or target[-1] != 1:
        raise CoreBug(f"rows: expected bytes side by side, found steps {source[-1]}, {target[-1]}")
    length = shape[-1]
    sizes: list[int] = []
    here: list[int] = []
    there: list[int] = []
    for size, step, other in reversed(
        list(zip(shape[:-1], source[2:-1], target[2:-1], strict=True))
    ):
        if size == 1:
            continue
        if not sizes and step == other == length and length * size <= largest:
            length *= size
        elif sizes and step == here[-1] * sizes[-1] and other == there[-1] * sizes[-1]:
            sizes[-1] *= size
        else:
            sizes.append(size)
            here.append(step)
            there.append(other)
    return Pair(
        length,
        tuple(reversed(sizes)),
        Side(source[0], source[1], tuple(reversed(here))),
        Side(target[0], target[1], tuple(reversed(there))),
    )


def runs(
    pair: Pair,
    source_pages: Pages,
    target_pages: Pages,
    layers: range,
    segments: tuple[int, int] = (0, 0),
) -> Runs:
    """Every copy that moves these pages in these layers, neighbours on both sides merged into one.

    segments: bytes after which source and target begin a new registration, 0 for never; no run
    crosses one. Target pages must differ from one another: the runs have no order.
    """
    source = _offsets(pair.source, pair.sizes, source_pages, layers)
    target = _offsets(pair.target, pair.sizes, target_pages, layers)
    if not len(source):
        return Runs(source, target, source)
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    joined = (np.diff(source) == pair.length) & (np.diff(target) == pair.length)
    for offsets, segment in zip((source, target), segments, strict=True):
        if segment:
            joined &= offsets[1:] % segment != 0
    first = np.flatnonzero(np.concatenate(([True], ~joined)))
    pieces = np.diff(np.append(first, len(source)))
    return Runs(source[first], target[first], pieces * pair.length)


def access_bytes(pair: Pair, bases: Sequence[int]) -> int:
    """The widest access, at most 16 bytes, that every piece of both sides can be cut into."""
    numbers = [pair.length, *bases]
    for side in (pair.source, pair.target):
        numbers += [side.layer, side.page, *side.steps]
    return int(np.gcd.reduce([16, *numbers]))


def segment_bytes(page_run: int, total: int, wanted: int, granule: int = 4096) -> int:
    """Bytes of one registration, about `wanted`: whole runs of a page, whole granules.

    page_run: bytes that a page has side by side. granule: of the system's memory. Returns 0, for
    one registration of everything, where no such size is below `total`.
    """
    unit = int(np.lcm(max(page_run, 1), granule))
    size = max(unit, wanted // unit * unit)
    return size if size < total else 0


def _offsets(side: Side, sizes: tuple[int, ...], pages: Pages, layers: range) -> Offsets:
    offsets = np.asarray(layers, dtype=np.int64)[:, None] * side.layer + pages * side.page
    for size, step in zip(sizes, side.steps, strict=True):
        offsets = offsets[..., None] + np.arange(size, dtype=np.int64) * step
    return offsets.reshape(-1)
