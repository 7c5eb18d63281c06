"""Host pages as stored bytes: canonical in every layout, in place where the layout allows it."""

import numpy as np
import pytest
import torch

from hicache.core.types import Tier
from hicache.memory.layouts import LAYOUTS
from hicache.memory.pools import Arena, StoredPool, stored_pools
from hicache.memory.torch_arena import Place, TorchArena
from hicache.models import ModelDescription
from tests.devices.cases import latent
from tests.runtime.storage.rig import PAGE, hybrid

MODELS = [hybrid(), latent()]


def arena(model: ModelDescription, layout: str, pages: int = 5) -> Arena:
    sizes = dict.fromkeys(model.components, pages)
    arena = Arena(model, PAGE, {Tier.HOST: sizes}, layout=layout)
    draw = np.random.default_rng(7)
    for component in model.components:
        for pool in arena.pools(Tier.HOST, component):
            pool.flat[:] = draw.integers(0, 256, len(pool.flat), dtype=np.uint8)
    return arena


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_stored_bytes_are_the_canonical_page(model: ModelDescription, layout: str) -> None:
    table = arena(model, layout)
    for component, pools in stored_pools(table).items():
        real = [pool for pool in table.pools(Tier.HOST, component) if pool.plan.page_bytes]
        assert [pool.name for pool in pools] == [pool.plan.pool.name for pool in real]
        for stored, pool in zip(pools, real, strict=True):
            for page in (0, 3):
                expected = pool.view[:, page].tobytes()
                buffer = memoryview(bytearray(stored.page_bytes))
                stored.save(page, buffer)
                assert bytes(buffer) == expected
                assert b"".join(stored.buffers(page)) == expected
                stored.load(4, buffer)
                assert pool.view[:, 4].tobytes() == expected
                for run in stored.buffers(1):
                    run[:] = bytes(len(run))
                assert not pool.view[:, 1].any()
                assert pool.view[:, 2].any()


def test_a_page_is_in_its_place_in_few_runs() -> None:
    """`page_first_direct` has the stored order; an interleaved page has a run for each row."""
    runs = {
        layout: len(stored_pools(arena(hybrid(), layout))["full"][0].buffers(1))
        for layout in LAYOUTS
    }
    assert runs == {
        "page_first_direct": 1,
        "layer_first": 4,
        "page_first": 2 * 2 * PAGE,
        "page_head": 2 * 2 * PAGE * 2,
    }


def test_tensors_in_host_memory_are_stored_from_the_same_bytes() -> None:
    model = hybrid()
    sizes = dict.fromkeys(model.components, 3)
    place = Place(torch.device("cpu"), lambda: 1 << 40)
    table = TorchArena(
        model, PAGE, {Tier.HOST: sizes}, place, layout="page_first", backend="kernel"
    )
    [pool, *_] = stored_pools(table)["swa"]
    assert isinstance(pool, StoredPool)
    pool.load(2, memoryview(bytes(range(pool.page_bytes))))
    [tensor] = table.pools(Tier.HOST, "swa")
    expected = tensor.view[:, 2].contiguous().numpy().tobytes()
    assert expected == bytes(range(pool.page_bytes))
    table.close()
