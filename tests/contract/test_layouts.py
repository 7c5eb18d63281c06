"""Layouts against address formulas written by hand, and every legal copy against byte equality."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from hicache.core.types import Pages, Tier
from hicache.memory.arena import Arena, Slab
from hicache.memory.layouts import BACKENDS, LAYOUTS, byte_runs
from hicache.memory.stamp import stamp
from hicache.models import ModelDescription, mha, mla

DEVICE, HOST = Tier.DEVICE, Tier.HOST

MHA = mha.describe(
    "tiny-mha", "made up", layers=3, hidden_size=8, vocabulary=16, attention_heads=4, kv_heads=4,
    head_elements=5, parameters=1000,
)  # fmt: skip
MLA = mla.describe(
    "tiny-mla", "made up", layers=3, hidden_size=8, vocabulary=16, attention_heads=4,
    latent_elements=9, rope_elements=2, nope_elements=3, value_elements=3, parameters=1000,
    active_parameters=900, experts=4, experts_per_token=2,
)  # fmt: skip
# A pool on some layers only, and a sidecar that follows the same page numbers.
MIXED = replace(
    MHA,
    name="tiny-mixed",
    pools=(
        replace(MHA.pools[0], layers=(0, 2)),
        replace(MLA.pools[0], name="indexer", layers=(1,), dtype_bytes=1),
    ),
)
TINY = {model.name: model for model in (MHA, MLA, MIXED)}
LEGAL = [
    (layout, backend)
    for layout in LAYOUTS
    for backend in BACKENDS
    if (layout, backend) != ("page_first", "direct")
]

# byte address of (layer, page, part, token), given the number of each and the bytes of a row
ADDRESS: dict[str, Callable[..., int]] = {
    "layer_first": lambda at, of, row: (
        (((at[0] * of[2] + at[2]) * of[1] + at[1]) * of[3] + at[3]) * row
    ),
    "page_first": lambda at, of, row: (
        (((at[1] * of[0] + at[0]) * of[3] + at[3]) * of[2] + at[2]) * row
    ),
    "page_first_direct": lambda at, of, row: (
        (((at[1] * of[0] + at[0]) * of[2] + at[2]) * of[3] + at[3]) * row
    ),
}


def make(model: ModelDescription, layout: str, backend: str, tp: int = 1) -> Arena:
    """4 device pages and 6 host pages of 3 tokens, every byte of both drawn at random."""
    sizes = {DEVICE: {"full": 4}, HOST: {"full": 6}}
    arena = Arena(model, 3, sizes, layout=layout, backend=backend, tp=tp)
    draw = np.random.default_rng(5)
    for tier in (DEVICE, HOST):
        for slab in arena.slabs(tier, "full"):
            slab.flat[:] = draw.integers(0, 256, size=slab.flat.shape, dtype=np.uint8)
    return arena


def pages(*numbers: int) -> Pages:
    return np.array(numbers, dtype=np.int64)


def content(slab: Slab, layout: str) -> dict[tuple[int, int], bytes]:
    """Bytes of each (model layer, page), parts then tokens, by the address formulas."""
    layers, count, parts, tokens, row = slab.view.shape
    flat = slab.flat.tobytes()
    found = {}
    for local, layer in enumerate(slab.pool.layers):
        for page in range(count):
            starts = [
                ADDRESS[layout]((local, page, part, token), (layers, count, parts, tokens), row)
                for part in range(parts)
                for token in range(tokens)
            ]
            found[layer, page] = b"".join(flat[start : start + row] for start in starts)
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", TINY)
def test_runs_are_the_addresses_and_cover_the_buffer_once(model: str, layout: str) -> None:
    for slab in make(TINY[model], layout, "kernel").slabs(HOST, "full"):
        expected = content(slab, layout)
        covered = np.zeros(slab.flat.shape, dtype=np.int64)
        for local, layer in enumerate(slab.pool.layers):
            for page in range(slab.view.shape[1]):
                runs = byte_runs(slab.view, local, page)
                for start, length in runs:
                    covered[start : start + length] += 1
                found = b"".join(slab.flat[start : start + size].tobytes() for start, size in runs)
                assert found == expected[layer, page]
        assert (covered == 1).all()


def test_what_each_layout_keeps_together() -> None:
    def runs(layout: str) -> list[tuple[int, int]]:
        return byte_runs(make(MHA, layout, "kernel").slabs(HOST, "full")[0].view, 1, 2)

    row, tokens, layers = 40, 3, 3
    page = 2 * tokens * row * layers
    assert runs("page_first_direct") == [(2 * page + 240, 120), (2 * page + 360, 120)]
    assert runs("layer_first") == [(6 * 240 + 240, 120), (6 * 240 + 6 * 120 + 240, 120)]
    assert runs("page_first") == [
        (2 * page + 240 + token * 80 + part * 40, 40) for part in (0, 1) for token in range(tokens)
    ]


@pytest.mark.parametrize(("layout", "backend"), LEGAL)
@pytest.mark.parametrize("model", TINY)
@settings(max_examples=15, deadline=None)
@given(
    count=st.integers(0, 4),
    device=st.permutations(range(4)),
    host=st.permutations(range(6)),
    ends=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    down=st.booleans(),
)
def test_a_copy_changes_its_targets_and_nothing_else(
    model: str,
    layout: str,
    backend: str,
    count: int,
    device: list[int],
    host: list[int],
    ends: tuple[int, int],
    down: bool,
) -> None:
    arena = make(TINY[model], layout, backend)
    first, last = min(ends), max(ends)
    layouts = {DEVICE: "layer_first", HOST: layout}
    numbers = {DEVICE: device[:count], HOST: host[:count]}
    here, there = (DEVICE, HOST) if down else (HOST, DEVICE)

    def everything(tier: Tier) -> list[dict[tuple[int, int], bytes]]:
        return [content(slab, layouts[tier]) for slab in arena.slabs(tier, "full")]

    sources, expected = everything(here), everything(there)
    for source, target in zip(sources, expected, strict=True):
        for layer, page in source:
            if first <= layer < last and page in numbers[here]:
                moved = numbers[there][numbers[here].index(page)]
                target[layer, moved] = source[layer, page]
    arena.copy(
        "full", (here, pages(*numbers[here])), (there, pages(*numbers[there])), (first, last)
    )
    assert everything(here) == sources
    assert everything(there) == expected


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
@pytest.mark.parametrize(("layout", "backend"), LEGAL)
@pytest.mark.parametrize("model", TINY)
def test_device_to_host_and_back_is_byte_exact(
    model: str, layout: str, backend: str, tp: int
) -> None:
    arena = make(TINY[model], layout, backend, tp)
    before = [arena.digest(DEVICE, "full", page) for page in range(4)]
    assert len(set(before)) == 4
    arena.copy("full", (DEVICE, pages(0, 1, 2, 3)), (HOST, pages(5, 0, 2, 3)), (0, 3))
    assert [arena.digest(HOST, "full", page) for page in (5, 0, 2, 3)] == before
    arena.copy("full", (HOST, pages(5, 0, 2, 3)), (DEVICE, pages(3, 2, 1, 0)), (0, 3))
    assert [arena.digest(DEVICE, "full", page) for page in (3, 2, 1, 0)] == before
    total = sum(slab.flat.nbytes for slab in arena.slabs(HOST, "full"))
    assert total == 6 * TINY[model].bytes_per_page("full", 3, tp)


def test_stamps_differ_wherever_a_row_differs() -> None:
    seeds = np.array([3, 4], dtype=np.uint64)
    rows = {
        (pool, layer, *place, bytes(block[place]))
        for pool in (0, 1)
        for layer in range(3)
        for block in [stamp(seeds, pool, range(layer, layer + 1), 2, 3, 12)[0]]
        for place in np.ndindex(2, 2, 3)
    }
    assert len({row[-1] for row in rows}) == len(rows) == 2 * 3 * 2 * 2 * 3
    whole = stamp(seeds, 1, range(3), 2, 3, 12)
    assert (whole[1:2, 1:] == stamp(seeds[1:], 1, range(1, 2), 2, 3, 12)).all()


def test_direct_with_page_first_is_told_what_to_use() -> None:
    with pytest.raises(
        CallerError, match=r"use layout page_first_direct or layer_first, or .*kernel"
    ):
        make(MHA, "page_first", "direct")


@pytest.mark.parametrize(
    ("layout", "backend", "sizes", "words"),
    [
        ("diagonal", "kernel", {HOST: {"full": 1}}, "layer_first, page_first, page_first_direct"),
        ("page_first", "magic", {HOST: {"full": 1}}, "io_backend: expected one of kernel, direct"),
        ("page_first", "kernel", {HOST: {"swa": 1}}, "expected sizes for full, found swa"),
        ("page_first", "kernel", {HOST: {"full": -1}}, "expected 0 or more, found -1"),
        ("page_first", "kernel", {HOST: {"full": 1 << 55}}, f"room for {1 << 55} pages of 720 b"),
    ],
)
def test_bad_arenas_are_refused_in_one_line(
    layout: str, backend: str, sizes: dict[Tier, dict[str, int]], words: str
) -> None:
    with pytest.raises(CallerError, match=words) as caught:
        Arena(MHA, 3, sizes, layout=layout, backend=backend)
    assert "\n" not in str(caught.value)
