"""PAGE-CONTIG over drawn pools; registration whose answer is believed; copies: their shape, how
wide their accesses are, and how few their runs."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hicache.models as models
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from hicache.memory import layouts, runs
from hicache.memory.host import GRANULE
from hicache.memory.layouts import LAYOUTS
from hicache.memory.pools import Arena, CopyShape, PoolPlan, copy_shapes, unmeasured_shapes
from hicache.memory.runs import segment_bytes
from tests.tiny import pages, tiny

TINY = tiny(3, 5, kv_heads=4)
KV = TINY.pools[0]


class Clerk:
    """A registrar that keeps a list, and answers `code` at call number `bad`."""

    def __init__(self, bad: int = -1, code: int = 2) -> None:
        self.bad, self.code = bad, code
        self.in_use: dict[int, int] = {}
        self.calls = 0

    def register(self, address: int, size: int) -> int:
        self.calls += 1
        if self.calls - 1 == self.bad:
            return self.code
        assert address not in self.in_use
        self.in_use[address] = size
        return 0

    def unregister(self, address: int) -> int:
        return 0 if self.in_use.pop(address, None) else 1

    def refusal(self, code: int) -> str:
        return f"returned {code}"


def registered(clerk: Clerk, pages: int, segment_bytes: int = 1 << 30) -> Arena:
    sizes = {Tier.HOST: {"full": pages}}
    return Arena(TINY, 16, sizes, registrar=clerk, segment_bytes=segment_bytes)


@settings(max_examples=30, deadline=None)
@given(
    layout=st.sampled_from(sorted(LAYOUTS)),
    heads=st.sampled_from([1, 2, 4, 8]),
    elements=st.integers(1, 300),
    layers=st.integers(1, 4),
    page_size=st.integers(1, 64),
    pages=st.integers(0, 400),
    wanted=st.integers(0, 1 << 22),
)
def test_no_page_straddles_two_segments(
    layout: str, heads: int, elements: int, layers: int, page_size: int, pages: int, wanted: int
) -> None:
    """Where each byte run of a page begins follows from the plan's strides alone."""
    pool = replace(KV, heads=heads, head_elements=elements, layers=tuple(range(layers)))
    plan = PoolPlan.of("host", pool, pages, page_size, layout)
    segment = segment_bytes(plan.run_bytes, plan.total_bytes, wanted)
    assert segment % GRANULE == 0, "one page of the system would be registered twice"
    steps = {
        axis: int(np.prod(plan.shape[place + 1 :], dtype=np.int64))
        for place, axis in enumerate(LAYOUTS[layout])
    }
    full = layout != "layer_first"
    rows = [(0, 0)] if full else [(layer, part) for layer in range(layers) for part in range(2)]
    starts = {
        layer * steps["layer"] + part * steps["part"] + page * steps["page"]
        for layer, part in rows
        for page in range(pages)
    }
    assert plan.run_bytes * len(starts) == plan.total_bytes
    if segment:
        assert set(range(0, plan.total_bytes, segment)) <= starts


def test_segments_are_about_as_large_as_wanted() -> None:
    sizes = GRANULE, 40 * GRANULE
    assert segment_bytes(*sizes, 16 * GRANULE + 1) == 16 * GRANULE
    assert segment_bytes(*sizes, 0) == GRANULE, "a page of the system at least"
    assert segment_bytes(*sizes, 40 * GRANULE) == 0, "one for everything"


def test_each_segment_is_registered_once_and_given_back() -> None:
    clerk = Clerk()
    arena = registered(clerk, 1024, 1 << 20)
    [pool] = arena.pools(Tier.HOST, "full")
    assert clerk.calls > 3
    assert max(clerk.in_use.values()) == pool.segment
    assert sum(clerk.in_use.values()) == pool.plan.total_bytes
    assert min(clerk.in_use) == pool.flat.ctypes.data
    arena.close()
    assert not clerk.in_use
    arena.close()


def test_a_failed_registration_is_an_error_and_leaves_nothing_registered() -> None:
    clerk = Clerk(bad=2)
    with pytest.raises(
        CallerError, match=r"\d+ of \d+ bytes from byte [1-9]\d+ on, .*returned 2"
    ) as e:
        registered(clerk, 1024, 1 << 20)
    assert "\n" not in str(e.value)
    assert clerk.calls == 3
    assert not clerk.in_use


def test_one_failing_pool_frees_the_others() -> None:
    both = replace(TINY, pools=(KV, replace(KV, name="draft")))
    clerk = Clerk(bad=1)
    with pytest.raises(CallerError, match="host pool draft"):
        Arena(both, 2, {Tier.HOST: {"full": 6}}, registrar=clerk)
    assert not clerk.in_use
    clerk = Clerk()
    arena = Arena(both, 2, {Tier.HOST: {"full": 6}}, registrar=clerk)
    assert sorted(clerk.in_use.values()) == sorted(
        pool.plan.total_bytes for pool in arena.pools(Tier.HOST, "full")
    )
    arena.close()
    assert not clerk.in_use


def test_a_failed_unregistration_is_an_error() -> None:
    clerk = Clerk()
    arena = registered(clerk, 4)
    clerk.in_use.clear()
    with pytest.raises(CallerError, match="unregister"):
        arena.close()


def test_equal_shapes_are_measured_whatever_the_pool_is_called() -> None:
    model = models.get("llama-3.1-8b")
    (kv,) = copy_shapes(model, "full", 64, "page_first_direct")
    assert kv == CopyShape("kv", 32, 2, 131_072)
    assert str(kv) == "kv with 32 layers of 2 x 131,072 bytes a page"
    measured = kv._replace(pool="draft")._asdict()
    for known, missing in (([measured], ()), ([{**measured, "layers": 4}], (kv,)), ([], (kv,))):
        assert unmeasured_shapes(model, 64, "page_first_direct", known) == missing
    (half,) = copy_shapes(model, "full", 64, "page_first_direct", tp=2)
    assert half.piece_bytes == kv.piece_bytes // 2


@pytest.mark.parametrize("name", models.names())
def test_accesses_are_16_bytes_wide_wherever_pages_allow_it(name: str) -> None:
    """8 only for one row of 584 bytes (8 x 73) a page: DeepSeek-V4 at 128 tokens a page."""
    model = models.get(name)
    for pool, page_size, layout in product(model.pools, (64, 128, 256), layouts.LAYOUTS):
        if page_size % pool.compression:
            continue
        plans = [PoolPlan.of("t", pool, 2, page_size, item) for item in ("layer_first", layout)]
        views = [layouts.canonical(np.empty(plan.shape, np.uint8), plan.layout) for plan in plans]
        if views[0].size:
            run = min(plan.run_bytes for plan in plans)
            result = runs.pair(views[0].shape[2:], views[0].strides, views[1].strides, run)
            expected = 8 if plans[0].sizes.token == 1 and pool.head_bytes == 584 else 16
            assert runs.access_bytes(result, (0, 16)) == expected, (pool.name, page_size, layout)


def test_neighbours_on_both_sides_are_one_run() -> None:
    plan = PoolPlan.of("t", models.get("llama-3.1-8b").pools[0], 9, 4, "layer_first")
    view = layouts.canonical(np.empty(plan.shape, np.uint8), plan.layout)
    pair = runs.pair(view.shape[2:], view.strides, view.strides, plan.run_bytes)
    for target, count in ((pages(4, 5, 6), 1), (pages(4, 5, 7), 2), (pages(6, 5, 4), 3)):
        result = runs.merged(pair, pages(0, 1, 2), target, 1)
        assert len(result.length) == 2 * count  # of keys and of values
