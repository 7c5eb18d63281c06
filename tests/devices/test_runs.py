"""Pieces and runs against byte-by-byte copies: what is listed is exactly what a copy must move."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hicache.models as models
from hicache.core.types import Pages
from hicache.memory import layouts, runs
from hicache.memory.layouts import Sizes
from hicache.memory.pools import PoolPlan

_SIZES = st.builds(
    Sizes,
    layer=st.integers(1, 3),
    page=st.integers(1, 6),
    part=st.integers(1, 2),
    token=st.integers(1, 3),
    head=st.integers(1, 3),
    head_bytes=st.integers(1, 5),
)
_LAYOUT = st.sampled_from(sorted(layouts.LAYOUTS))


def runs_of(
    pair: runs.Pair, source: Pages, target: Pages, layers: range, segments: tuple[int, int] = (0, 0)
) -> runs.Runs:
    found = runs.merged(pair, source, target, len(layers))
    return runs.placed(found, pair, layers, segments)


@settings(max_examples=300, deadline=None)
@given(_SIZES, _LAYOUT, _LAYOUT, st.data())
def test_runs_move_the_pages_and_nothing_else(
    sizes: Sizes, near: str, far: str, data: st.DataObject
) -> None:
    count = data.draw(st.integers(0, sizes.page))
    here, there = (
        np.array(data.draw(st.permutations(range(sizes.page)))[:count], dtype=np.int64)
        for _ in range(2)
    )
    first = data.draw(st.integers(0, sizes.layer))
    layers = range(first, data.draw(st.integers(first, sizes.layer)))
    source, target = (
        layouts.canonical(
            np.random.default_rng(seed).integers(
                0, 256, layouts.shape(layout, sizes), dtype=np.uint8
            ),
            layout,
        )
        for seed, layout in ((1, near), (2, far))
    )
    flats = [
        view.transpose(np.argsort(layouts.axes(layout))).reshape(-1)
        for view, layout in ((source, near), (target, far))
    ]
    expected = target.copy()
    for layer in layers:
        expected[layer, there] = source[layer, here]

    largest = min(layouts.run_bytes(layout, sizes) for layout in (near, far))
    pair = runs.pair(source.shape[2:], source.strides, target.strides, largest)
    wanted = [data.draw(st.sampled_from([0, 1, 20])) for _ in range(2)]
    total = flats[0].size
    segments = tuple(
        runs.segment_bytes(layouts.run_bytes(layout, sizes), total, size, granule=1) if size else 0
        for layout, size in zip((near, far), wanted, strict=True)
    )
    found = runs_of(pair, here, there, layers, (segments[0], segments[1]))

    assert pair.page_bytes == expected[0, 0].size
    assert int(found.length.sum()) == len(layers) * count * pair.page_bytes
    for start, goal, length in zip(*found, strict=True):
        for offset, segment in zip((start, goal), segments, strict=True):
            assert not segment or offset // segment == (offset + length - 1) // segment
        flats[1][goal : goal + length] = flats[0][start : start + length]
    assert np.array_equal(target, expected)
    _cannot_be_merged(found, segments)
    access = runs.access_bytes(pair, (0, 16))
    assert access in (1, 2, 4, 8, 16)
    assert not any(int(number) % access for row in found for number in row)


def _cannot_be_merged(found: runs.Runs, segments: tuple[int, ...]) -> None:
    """No two runs are neighbours on both sides, but where a registration ends."""
    ends = {
        (int(start + length), int(goal + length))
        for start, goal, length in zip(*found, strict=True)
    }
    for start, goal, _ in zip(*found, strict=True):
        if (int(start), int(goal)) in ends:
            assert any(
                segment and offset % segment == 0
                for offset, segment in zip((start, goal), segments, strict=True)
            )


@settings(max_examples=300, deadline=None)
@given(_SIZES, _LAYOUT, _LAYOUT)
def test_rows_are_all_pieces_of_a_page_in_order(sizes: Sizes, near: str, far: str) -> None:
    views = [
        layouts.canonical(np.zeros(layouts.shape(layout, sizes), np.uint8), layout)
        for layout in (near, far)
    ]
    largest = min(layouts.run_bytes(layout, sizes) for layout in (near, far))
    pair = runs.pair(views[0].shape[2:], views[0].strides, views[1].strides, largest)
    found = runs.rows(pair, sizes.layer)
    pieces = [
        (layer * side.layer + sum(at * step for at, step in zip(place, side.steps, strict=True)))
        for side in (pair.source, pair.target)
        for layer, *place in product(range(sizes.layer), *map(range, pair.sizes))
    ]
    count = sizes.layer * pair.pieces
    sides = (pieces[:count], pieces[count:])
    if found is not None:
        assert found.number == count > 1
        for offsets, step in zip(sides, found[1:], strict=True):
            assert offsets == [number * step for number in range(count)]
    elif count > 1:
        assert any(len(set(np.diff(offsets))) > 1 for offsets in sides)


@pytest.mark.parametrize("name", models.names())
def test_accesses_are_16_bytes_wide_wherever_pages_allow_it(name: str) -> None:
    """8 only for one row of 584 bytes (8 x 73) a page: DeepSeek-V4 at 128 tokens a page."""
    model = models.get(name)
    for pool, page_size, layout in product(model.pools, (64, 128, 256), layouts.LAYOUTS):
        if page_size % pool.compression:
            continue
        plans = [PoolPlan.of("t", pool, 2, page_size, one) for one in ("layer_first", layout)]
        views = [layouts.canonical(np.empty(plan.shape, np.uint8), plan.layout) for plan in plans]
        if views[0].size:
            run = min(plan.run_bytes for plan in plans)
            found = runs.pair(views[0].shape[2:], views[0].strides, views[1].strides, run)
            expected = 8 if plans[0].sizes.token == 1 and pool.head_bytes == 584 else 16
            assert runs.access_bytes(found, (0, 16)) == expected, (pool.name, page_size, layout)
