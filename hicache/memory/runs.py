"""Byte offsets of pages, for the copies of an accelerator.

`pair` finds the largest pieces that are contiguous on both sides; `merged` and `placed` list their
offsets for given pages; `rows` tells where all pieces of a page are one rectangle.

A piece belongs to one page of one layer. The pieces of a page in a layer form at most a few
dimensions (parts, tokens, heads), each with one step per side.
"""

import mmap
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CoreBug
from hicache.core.types import Pages

Offsets = NDArray[np.int64]


class Side(NamedTuple):
    """Steps of one side, in bytes: between layers, between pages, and along `Pair.sizes`."""

    layer: int
    page: int
    steps: tuple[int, ...]


class Pair(NamedTuple):
    """How the pages of two buffers correspond. length: bytes of a piece. sizes: the dimensions of
    the pieces of one page in one layer."""

    length: int
    sizes: tuple[int, ...]
    source: Side
    target: Side

    @property
    def pieces(self) -> int:
        """Pieces of one page in one layer."""
        return prod(self.sizes)

    @property
    def page_bytes(self) -> int:
        """Bytes of one page in one layer."""
        return self.length * self.pieces


class Rows(NamedTuple):
    """The pieces of a page that follow each other at even steps. number: of pieces. source,
    target: bytes from one piece to the next."""

    number: int
    source: int
    target: int


class Runs(NamedTuple):
    """The copies to make, by ascending source: byte offsets and lengths, int64[n] each."""

    source: Offsets
    target: Offsets
    length: Offsets


def pair(shape: Sequence[int], source: Sequence[int], target: Sequence[int], largest: int) -> Pair:
    """The pair for two canonical views (layer, page, any dimensions, bytes last).

    shape: the dimensions after layer and page. source, target: byte strides of all dimensions,
    including layer and page. largest: the contiguous bytes of a page on both sides, which limit the
    length of a piece. More bytes may happen to be adjacent, but a border of two registrations may
    lie between them. Raises CoreBug if the last dimension is not contiguous.
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


def rows(pair: Pair, layers: int) -> Rows | None:
    """The pieces of a page in this many layers; None for one piece, and where their steps are
    uneven on a side."""
    sizes = (layers, *pair.sizes)
    steps = ((side.layer, *side.steps) for side in (pair.source, pair.target))
    items = [items for items in zip(sizes, *steps, strict=True) if items[0] > 1]
    for (_, *outer), (size, *inner) in pairwise(items):
        if outer != [size * step for step in inner]:
            return None
    return Rows(layers * pair.pieces, *items[-1][1:]) if items else None


def merged(pair: Pair, source_pages: Pages, target_pages: Pages, layers: int) -> Runs:
    """The copies that move these pages in the first `layers` layers, without regard to
    registrations. Neighbours on both sides are merged; target pages must be distinct, because the
    copies may be made in any order. `placed` moves them to other layers."""
    source = _offsets(pair.source, pair.sizes, source_pages, layers)
    target = _offsets(pair.target, pair.sizes, target_pages, layers)
    if not len(source):
        return Runs(source, target, source)
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    joined = (np.diff(source) == pair.length) & (np.diff(target) == pair.length)
    first = np.flatnonzero(np.concatenate(([True], ~joined)))
    pieces = np.diff(np.append(first, len(source)))
    return Runs(source[first], target[first], pieces * pair.length)


def placed(runs: Runs, pair: Pair, layers: range, segments: tuple[int, int]) -> Runs:
    """These runs of the first layers, in the layers from `layers.start` on, cut at every border of
    registrations."""
    source = runs.source + layers.start * pair.source.layer
    target = runs.target + layers.start * pair.target.layer
    placed = Runs(source, target, runs.length)
    for side, segment in enumerate(segments):
        if segment and len(source):
            placed = _cut(placed, placed[side], segment)
    return placed


def access_bytes(pair: Pair, bases: Sequence[int]) -> int:
    """Bytes of the widest access, at most 16, to which all pieces of both sides are aligned. bases:
    the addresses of the two buffers."""
    numbers = [pair.length, *bases]
    for side in (pair.source, pair.target):
        numbers += [side.layer, side.page, *side.steps]
    return int(np.gcd.reduce([16, *numbers]))


def segment_bytes(page_run: int, total: int, wanted: int, granule: int = mmap.PAGESIZE) -> int:
    """Bytes of one registration, about `wanted`: a multiple of `page_run` and of `granule`; 0, for
    one of everything, if none is below `total`. page_run: contiguous bytes of a page."""
    unit = int(np.lcm(max(page_run, 1), granule))
    size = max(unit, wanted // unit * unit)
    return size if size < total else 0


def _cut(runs: Runs, starts: Offsets, segment: int) -> Runs:
    """The runs, cut where a border lies inside. starts: of the runs, on the side of the borders."""
    first, last = starts // segment, (starts + runs.length - 1) // segment
    parts = last - first + 1
    if len(starts) == parts.sum():
        return runs
    run = np.repeat(np.arange(len(starts)), parts)
    number = np.arange(len(run)) - np.repeat(np.cumsum(parts) - parts, parts)
    border = (first[run] + number) * segment
    skipped = np.maximum(border - starts[run], 0)
    ended = np.minimum(border + segment - starts[run], runs.length[run])
    return Runs(runs.source[run] + skipped, runs.target[run] + skipped, ended - skipped)


def _offsets(side: Side, sizes: tuple[int, ...], pages: Pages, layers: int) -> Offsets:
    offsets = np.arange(layers, dtype=np.int64)[:, None] * side.layer + pages * side.page
    for size, step in zip(sizes, side.steps, strict=True):
        offsets = offsets[..., None] + np.arange(size, dtype=np.int64) * step
    return offsets.reshape(-1)
