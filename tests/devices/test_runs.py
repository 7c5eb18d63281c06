"""How wide the accesses of a copy are, and how few its runs."""

from itertools import product

import numpy as np
import pytest

import hicache.models as models
from hicache.memory import layouts, runs
from hicache.memory.pools import PoolPlan
from tests.tiny import pages


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
