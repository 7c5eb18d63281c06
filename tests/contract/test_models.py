"""What every model description owes its users, and the figures that are published."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache import models
from hicache.core.errors import CallerError
from hicache.memory.pools import by_total
from hicache.models import PoolDescription

GIB = 1 << 30


def by_hand(pool: PoolDescription, page_size: int, tp: int) -> Fraction:
    """Bytes of a page on one rank, element by element."""
    bits = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "fp4": 4}[pool.dtype]
    heads = max(Fraction(pool.heads, tp), Fraction(1))
    head = Fraction(pool.head_elements * bits, 8) + pool.tail_bytes
    if pool.scale_group:
        head += sum(pool.scale_bytes for _ in range(0, pool.head_elements, pool.scale_group))
    rows = Fraction(page_size, pool.compression) if not pool.page_rows else pool.page_rows
    return len(pool.layers) * len(pool.parts) * rows * heads * head


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_bytes_count_every_element_on_every_rank_and_stage(data: st.DataObject) -> None:
    model = models.get(data.draw(st.sampled_from(models.names())))
    tp = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    pp = data.draw(st.integers(1, min(9, model.layers)))
    page_size = 128 * data.draw(st.integers(1, 4))
    stages = model.stages(pp)
    for name in model.components:
        total = sum(by_hand(pool, page_size, tp) for pool in model.pools_of(name))
        assert model.bytes_per_page(name, page_size, tp) == total
        assert sum(stage.bytes_per_page(name, page_size, tp) for stage in stages) == total
    for number, pool in enumerate(model.pools):
        shards = [stage.pools[number].layers for stage in stages]
        assert tuple(layer for shard in shards for layer in shard) == pool.layers
        if not pool.page_rows:
            assert pool.token_bytes(tp) * page_size == by_hand(pool, page_size, tp)


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_a_total_of_bytes_is_the_total_of_all_pools_on_all_ranks(data: st.DataObject) -> None:
    model = models.get(data.draw(st.sampled_from(models.names())))
    tp, pp = data.draw(st.sampled_from([1, 2, 8])), data.draw(st.integers(1, 4))
    device = {name: data.draw(st.integers(1, 10_000)) for name in model.components}
    total, shared = data.draw(st.integers(1, 4000)) * GIB, data.draw(st.booleans())
    least = {
        name: sum(
            by_hand(pool, 256, tp) * tp // (max(1, tp // pool.heads) if shared else 1)
            for pool in model.pools_of(name)
        )
        for name in device
    }
    if sum(least.values()) > total:
        with pytest.raises(CallerError, match=r"host_bytes.*at least"):
            by_total(model.stages(pp), 256, device, total, tp, not shared)
        return
    plan = by_total(model.stages(pp), 256, device, total, tp, not shared)
    taken = sum(least[name] * pages for name, pages in plan.items())
    assert taken <= total
    assert min(plan.values()) >= 1
    # nor is there room for one more page of each
    assert taken + sum(least.values()) > total


def test_page_size_must_be_a_multiple_of_the_compression_group() -> None:
    pro = models.get("deepseek-v4-pro")
    for size, ratio in ((2, 4), (6, 4), (64, 128), (192, 128)):
        with pytest.raises(CallerError, match=f"page_size: expected a multiple of {ratio}.*{size}"):
            pro.bytes_per_page("full", size)
    assert pro.bytes_per_page("full", 128) * 2 == pro.bytes_per_page("full", 256)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"dtype": "int3"}, "dtype: expected one of fp32, bf16, fp16, fp8, fp4, found 'int3'"),
        ({"kind": "other"}, "kind: expected one of kv, latent, indexer, state, logical"),
        ({"layers": (1, 0)}, "layers: expected layer numbers from 0, ascending"),
        ({"layers": (0, 0)}, "layers: expected layer numbers from 0, ascending"),
        ({"kind": "logical"}, "layers: expected none"),
        ({"parts": ()}, "parts: expected at least one"),
        ({"heads": 0}, "heads: expected at least 1"),
        ({"compression": 0}, "compression: expected at least 1"),
        ({"compression": 4, "page_rows": 1}, "page_rows: expected 0"),
        ({"interval": 64}, "interval: expected 0"),
        ({"scale_group": 32}, "scale_bytes: expected above 0"),
        ({"dtype": "fp4", "head_elements": 5}, "head_elements: expected whole bytes of fp4"),
    ],
)
def test_an_impossible_pool_is_refused(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(CallerError, match=f"pool kv: {text}"):
        replace(models.get("llama-3.1-8b").pools[0], **changed)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama-3-8b", r"deepseek-v3.*did you mean llama-3\.1-8b\?"),
        ("org/Llama-3.1-8B-Instruct", r"did you mean llama-3\.1-8b\?"),
        ("qwen3", "did you mean qwen3-235b-a22b or qwen3-32b or"),
        ("gemma-3-2", r"did you mean gemma-3-27b\?"),
        ("", "expected one of deepseek-v3"),
        ("none/", "or a config.json or its folder, found 'none/'"),
    ],
)
def test_unknown_names_are_refused_with_those_that_exist(name: str, text: str) -> None:
    assert models.get("Qwen3-Next-80B") is models.get("qwen3-next-80b-a3b")
    with pytest.raises(CallerError, match=text):
        models.get(name)


def test_unknown_components_and_page_sizes_are_refused() -> None:
    with pytest.raises(CallerError, match="expected one of full"):
        models.get("llama-3.1-8b").bytes_per_page("swa", 64)
    with pytest.raises(CallerError, match="page_size"):
        models.get("llama-3.1-8b").bytes_per_page("full", 0)
