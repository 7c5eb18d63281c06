"""The shape of copies, against the views of real buffers."""

from __future__ import annotations

import numpy as np
import pytest

import hicache.models as models
from hicache.memory.layouts import LAYOUTS, canonical
from hicache.memory.pools import CopyShape, PoolPlan, copy_shapes, unmeasured_shapes
from hicache.memory.runs import pair

PAGE_SIZE = 128


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("name", models.names())
def test_a_shape_is_that_of_the_pieces_that_are_copied(name: str, layout: str) -> None:
    model = models.get(name)
    for component in model.components:
        expected = []
        for pool in model.pools_of(component):
            plans = [PoolPlan.of("t", pool, 1, PAGE_SIZE, one) for one in ("layer_first", layout)]
            views = [canonical(np.empty(plan.shape, np.uint8), plan.layout) for plan in plans]
            if views[0].size:
                run = min(plan.run_bytes for plan in plans)
                one = pair(views[0].shape[2:], views[0].strides, views[1].strides, run)
                found = (len(pool.layers), one.pieces, one.length)
                expected.append(CopyShape(pool.name, *found))
        assert list(copy_shapes(model, component, PAGE_SIZE, layout)) == expected


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
