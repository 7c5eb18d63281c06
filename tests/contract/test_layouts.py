"""Layouts against address formulas written by hand, and every legal copy against byte equality."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.memory.layouts import LAYOUTS, Bytes, legal, page_runs
from hicache.memory.pools import Arena, Pool, PoolPlan
from hicache.models import ModelDescription
from tests.tiny import pages, tiny, tiny_latents

DEVICE, HOST = Tier.DEVICE, Tier.HOST

MHA = tiny(3, 5, kv_heads=4)
MLA = tiny_latents(3, 9, 2, 3, 3)
KV, LATENT = MHA.pools[0], MLA.pools[0]
# A pool on some layers only, and a sidecar that follows the same page numbers.
MIXED = replace(
    MHA,
    name="tiny-mixed",
    pools=(
        replace(KV, layers=(0, 2)),
        replace(LATENT, name="indexer", anchor="kv", layers=(1,), dtype="fp8"),
    ),
)
# Page numbers without bytes, a row for every three tokens, a state a page, and 4-bit elements with
# a scale of their own for every four, all on the same numbers.
LOGICAL = replace(
    MHA,
    name="tiny-logical",
    pools=(
        replace(KV, name="slots", kind="logical", layers=(), parts=(), head_elements=0),
        replace(LATENT, name="c3", anchor="slots", compression=3, tail_bytes=2),
        replace(KV, name="state", anchor="slots", kind="state", parts=("s",), page_rows=1),
        replace(
            KV, name="fp4", anchor="c3", head_elements=10, dtype="fp4", scale_group=4, scale_bytes=1
        ),
    ),
)
TINY = {model.name: model for model in (MHA, MLA, MIXED, LOGICAL)}
LEGAL = legal()

# The order of (layer, page, part, token, head) in the buffer, the slowest first.
ORDER = {
    "layer_first": (0, 2, 1, 3, 4),
    "page_first": (1, 0, 3, 2, 4),
    "page_first_direct": (1, 0, 2, 3, 4),
    "page_head": (1, 4, 0, 2, 3),
}


def address(layout: str, at: tuple[int, ...], of: tuple[int, ...], size: int) -> int:
    """Byte of a place, given the number of each and a head's bytes."""
    place = 0
    for axis in ORDER[layout]:
        place = place * of[axis] + at[axis]
    return place * size


def make(model: ModelDescription, layout: str, backend: str, tp: int = 1) -> Arena:
    """4 device pages and 6 host pages of 3 tokens, every byte of both drawn at random."""
    sizes = {DEVICE: {"full": 4}, HOST: {"full": 6}}
    arena = Arena(model, 3, sizes, layout=layout, backend=backend, tp=tp)
    draw = np.random.default_rng(5)
    for tier in (DEVICE, HOST):
        for pool in arena.pools(tier, "full"):
            pool.flat[:] = draw.integers(0, 256, size=pool.flat.shape, dtype=np.uint8)
    return arena


def content(pool: Pool, layout: str) -> dict[tuple[int, int], bytes]:
    """Bytes of each (model layer, page), parts, tokens, then heads, by the address formulas."""
    layers, count, parts, tokens, heads, size = pool.view.shape
    of = (layers, count, parts, tokens, heads)
    flat = pool.flat.tobytes()
    result = {}
    for local, layer in enumerate(pool.plan.pool.layers):
        for page in range(count):
            starts = [
                address(layout, (local, page, *place), of, size)
                for place in np.ndindex(parts, tokens, heads)
            ]
            result[layer, page] = b"".join(flat[start : start + size] for start in starts)
    return result


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", TINY)
def test_a_page_has_as_many_runs_as_the_plan_says(model: str, layout: str) -> None:
    for pool in make(TINY[model], layout, "kernel").pools(HOST, "full"):
        pool.flat[:] = 0
        pool.view[:, 2] = 1
        edges = np.flatnonzero(np.diff(np.concatenate(([0], pool.flat, [0])).astype(np.int8)))
        lengths = np.diff(edges)[::2]
        assert set(lengths.tolist()) == {pool.plan.run_bytes} - {0}
        assert lengths.sum() == pool.plan.page_bytes
        if layout != "layer_first":
            assert (raw(pool, 2) == 1).all()


def raw(pool: Pool, page: int) -> Bytes:
    """The bytes of a page that is one run."""
    size = pool.plan.page_bytes
    result: Bytes = pool.flat[page * size : (page + 1) * size]
    return result


def host_pool(layout: str, tp: int = 1) -> Pool:
    plan = PoolPlan.of("host", MHA.pools[0], 4, 3, layout, tp)
    return Pool.of(plan, np.zeros(plan.total_bytes, np.uint8))


@pytest.mark.parametrize("tp", [2, 4])
def test_ranks_of_any_tp_share_page_head_pages_byte_for_byte(tp: int) -> None:
    """Rank r's page is a slice of TP=1's page, so ranks can read what fewer or more ranks wrote."""
    full = host_pool("page_head")
    full.flat[:] = np.random.default_rng(8).integers(0, 256, full.flat.shape, dtype=np.uint8)
    ranks = [host_pool("page_head", tp) for _ in range(tp)]
    share = MHA.pools[0].heads // tp
    for rank, pool in enumerate(ranks):
        pool.view[:] = full.view[..., rank * share : (rank + 1) * share, :]
    for page in range(4):
        assert b"".join(raw(pool, page).tobytes() for pool in ranks) == raw(full, page).tobytes()
    other = host_pool("page_first", tp)
    other.view[:] = full.view[..., :share, :]
    same = host_pool("page_first")
    same.view[:] = full.view
    assert raw(other, 0).tobytes() != raw(same, 0).tobytes()[: other.plan.page_bytes]


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_page_runs_cover_the_pairs_with_as_few_runs_as_possible(
    pairs: list[tuple[int, int]],
) -> None:
    source, target = pages(*(a for a, _ in pairs)), pages(*(b for _, b in pairs))
    runs = page_runs(source, target)
    assert [(a + i, b + i) for a, b, count in runs for i in range(count)] == pairs
    ends = [(a + count, b + count) for a, b, count in runs]
    assert all(end != (a, b) for end, (a, b, _) in zip(ends, runs[1:], strict=False))


@pytest.mark.parametrize(("layout", "backend"), LEGAL)
@pytest.mark.parametrize("model", TINY)
@settings(max_examples=8, deadline=None)
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
        return [content(pool, layouts[tier]) for pool in arena.pools(tier, "full")]

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


@pytest.mark.parametrize(
    ("layout", "backend", "sizes", "words"),
    [
        ("diagonal", "kernel", {HOST: {"full": 1}}, "layer_first, page_first, page_first_direct"),
        ("page_first", "magic", {HOST: {"full": 1}}, "io_backend: expected one of kernel, direct"),
        ("page_first", "direct", {HOST: {"full": 1}}, "use layout page_first_direct or layer_fir"),
        ("page_head", "direct", {HOST: {"full": 1}}, "or layer_first, or io_backend kernel"),
        ("page_first", "kernel", {HOST: {"swa": 1}}, "expected sizes for full, found swa"),
        ("page_first", "kernel", {HOST: {"full": -1}}, "expected 0 or more, found -1"),
        ("page_first", "kernel", {HOST: {"full": 1 << 55}}, f"room for {720 << 55} bytes"),
    ],
)
def test_bad_arenas_are_refused_in_one_line(
    layout: str, backend: str, sizes: dict[Tier, dict[str, int]], words: str
) -> None:
    with pytest.raises(CallerError, match=words) as caught:
        Arena(MHA, 3, sizes, layout=layout, backend=backend)
    assert "\n" not in str(caught.value)
