"""What every model description owes its users, and the figures that are published."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache import models
from hicache.core.errors import CallerError
from hicache.memory.plan import plan_pools
from hicache.models import ModelDescription, PoolDescription, deepseek_v4, draft

GIB = 1 << 30

PUBLISHED_BYTES_PER_TOKEN = {
    "llama-3.1-8b": 131_072,
    "llama-3.1-70b": 327_680,
    "qwen3-32b": 262_144,
    "deepseek-v3": 70_272,
    # K and V x heads x elements x bf16, over all layers
    "gpt-oss-120b": 36 * 2 * 8 * 64 * 2,
    "qwen3-8b": 36 * 2 * 8 * 128 * 2,
    "qwen3-235b-a22b": 94 * 2 * 4 * 128 * 2,
    "llama-2-7b": 512 * 1024,
    "llama-2-70b": 327_680,
    "mistral-7b": 131_072,
    "gemma-3-27b": 62 * 2 * 16 * 128 * 2,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "qwen3.5-397b-a17b": 15 * 2 * 2 * 256 * 2,
    # 1,152 bytes of latent, and an index key of 128 bytes with a 4-byte scale
    "deepseek-v3.2": 61 * (1152 + 132),
    "llama-3.1-8b-eagle3": 33 * 4096,
    "deepseek-v3-mtp": 62 * 1152,
}


def matrices(rows: list[tuple[int, int]]) -> int:
    return sum(height * width for height, width in rows)


def dense(
    *, layers: int, hidden: int, inner: int, heads: int, kv_heads: int, head: int, vocabulary: int,
    per_layer_norms: int,
) -> int:  # fmt: skip
    """Parameters of a gated dense transformer, matrix by matrix."""
    layer = matrices(
        [
            (heads * head, hidden),
            (kv_heads * head, hidden),
            (kv_heads * head, hidden),
            (hidden, heads * head),
            (inner, hidden),
            (inner, hidden),
            (hidden, inner),
        ]
    )
    return layers * (layer + per_layer_norms) + hidden + 2 * vocabulary * hidden


COUNTED = {
    "llama-3.1-8b": dense(
        layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, head=128, vocabulary=128256,
        per_layer_norms=2 * 4096,
    ),
    "llama-3.1-70b": dense(
        layers=80, hidden=8192, inner=28672, heads=64, kv_heads=8, head=128, vocabulary=128256,
        per_layer_norms=2 * 8192,
    ),
    "qwen3-32b": dense(
        layers=64, hidden=5120, inner=25600, heads=64, kv_heads=8, head=128, vocabulary=151936,
        per_layer_norms=2 * 5120 + 2 * 128,
    ),
    "qwen3-8b": dense(
        layers=36, hidden=4096, inner=12288, heads=32, kv_heads=8, head=128, vocabulary=151936,
        per_layer_norms=2 * 4096 + 2 * 128,
    ),
    "llama-2-7b": dense(
        layers=32, hidden=4096, inner=11008, heads=32, kv_heads=32, head=128, vocabulary=32000,
        per_layer_norms=2 * 4096,
    ),
    "llama-2-70b": dense(
        layers=80, hidden=8192, inner=28672, heads=64, kv_heads=8, head=128, vocabulary=32000,
        per_layer_norms=2 * 8192,
    ),
    "mistral-7b": dense(
        layers=32, hidden=4096, inner=14336, heads=32, kv_heads=8, head=128, vocabulary=32768,
        per_layer_norms=2 * 4096,
    ),
}  # fmt: skip


def gated_hybrid(
    *, layers: int, hidden: int, vocabulary: int, heads: int, kv_heads: int, head: int,
    value_heads: int, experts: int, inner: int, met: int,
) -> tuple[int, int]:  # fmt: skip
    """Parameters of Gated DeltaNet layers, every fourth one gated attention; all, and met."""
    keys, values = 16 * 128, value_heads * 128
    linear = matrices(
        [(2 * keys + 2 * values, hidden), (2 * value_heads, hidden), (hidden, values)]
    )
    linear += 4 * (2 * keys + values) + 2 * value_heads + 128
    full = matrices(
        [(2 * heads * head, hidden), (2 * kv_heads * head, hidden), (hidden, heads * head)]
    )
    expert = 3 * inner * hidden
    always = layers // 4 * (3 * linear + full + 2 * head) + hidden + 2 * vocabulary * hidden
    always += layers * (expert + hidden + experts * hidden + 2 * hidden)
    return always + layers * experts * expert, always + layers * met * expert


def compressed(
    *, hidden: int, few: int, many: int, none: int, heads: int, query: int, groups: int,
    experts: int, inner: int,
) -> tuple[int, int]:  # fmt: skip
    """Parameters of DeepSeek V4, by the list of its checkpoint's weights; all, and met."""
    layers = few + many + none
    attention = matrices(
        [(query, hidden), (heads * 512, query), (512, hidden), (hidden, groups * 1024)]
    )
    attention += groups * 1024 * heads * 512 // groups + query + 512 + heads
    mixing = 2 * (24 * 4 * hidden + 24 + 3)
    four = 2 * 1024 * hidden + 4 * 1024 + 512 + 2 * 256 * hidden + 4 * 256 + 128
    four += 64 * hidden + 8192 * query
    hundred = 2 * 512 * hidden + 128 * 512 + 512
    expert = 3 * inner * hidden
    always = layers * (attention + mixing + 2 * hidden + experts * hidden + expert)
    always += few * four + many * hundred + (layers - 3) * experts
    always += 4 * 4 * hidden + 4 + 1 + hidden + 2 * 129_280 * hidden
    return always + layers * experts * expert, always + layers * 6 * expert


def gpt_oss() -> tuple[int, int]:
    attention = matrices([(4096, 2880), (512, 2880), (512, 2880), (2880, 4096)])
    attention += 4096 + 2 * 512 + 2880 + 64
    expert = 2 * 2880 * 2880 + 2 * 2880 + 2880 * 2880 + 2880
    always = 36 * (attention + 128 * 2880 + 128 + 2 * 2880) + 2880 + 2 * 201_088 * 2880
    return always + 36 * 128 * expert, always + 36 * 4 * expert


def qwen3_moe() -> tuple[int, int]:
    attention = matrices([(64 * 128, 4096), (2 * 4 * 128, 4096), (4096, 64 * 128)])
    expert = 3 * 1536 * 4096
    always = 94 * (attention + 128 * 4096 + 2 * 4096 + 2 * 128) + 4096 + 2 * 151_936 * 4096
    return always + 94 * 128 * expert, always + 94 * 8 * expert


def with_indexer() -> tuple[int, int]:
    indexer = 61 * (matrices([(64 * 128, 1536), (128, 7168), (64, 7168)]) + 2 * 128)
    plain = models.get("deepseek-v3")
    return plain.parameters + indexer, plain.active_parameters + indexer


SPARSE = {
    "gpt-oss-120b": gpt_oss(),
    "qwen3-235b-a22b": qwen3_moe(),
    "qwen3-next-80b-a3b": gated_hybrid(
        layers=48, hidden=2048, vocabulary=151_936, heads=16, kv_heads=2, head=256, value_heads=32,
        experts=512, inner=512, met=10,
    ),
    "qwen3.5-397b-a17b": gated_hybrid(
        layers=60, hidden=4096, vocabulary=248_320, heads=32, kv_heads=2, head=256, value_heads=64,
        experts=512, inner=1024, met=10,
    ),
    "deepseek-v3.2": with_indexer(),
    "deepseek-v4-pro": compressed(
        hidden=7168, few=30, many=31, none=0, heads=128, query=1536, groups=16, experts=384,
        inner=3072,
    ),
    "deepseek-v4-flash": compressed(
        hidden=4096, few=21, many=20, none=2, heads=64, query=1024, groups=8, experts=256,
        inner=2048,
    ),
}  # fmt: skip


@pytest.fixture(params=models.names())
def model(request: pytest.FixtureRequest) -> ModelDescription:
    return models.get(request.param)


def test_a_model_is_complete_and_consistent(model: ModelDescription) -> None:
    assert models.get(model.name) is model
    assert model.source
    assert len({pool.name for pool in model.pools}) == len(model.pools)
    assert 0 < model.layer_parameters < model.active_parameters <= model.parameters
    assert (model.active_parameters == model.parameters) == (model.experts == 0)
    assert model.experts_per_token <= model.experts
    assert model.family.replace("-", "_") in model_files()
    assert model.components[0] == "full"
    assert {layer for pool in model.pools for layer in pool.layers} == set(range(model.layers))
    owners = {pool.name: pool for pool in model.pools}
    for pool in model.pools:
        assert not pool.anchor or owners[pool.anchor].component == pool.component


def model_files() -> set[str]:
    return {path.stem for path in Path(models.__file__).parent.glob("[a-z]*.py")}


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
@settings(max_examples=200, deadline=None)
def test_bytes_count_every_element_on_every_rank_and_stage(data: st.DataObject) -> None:
    model = models.get(data.draw(st.sampled_from(models.names())))
    tp = data.draw(st.sampled_from([1, 2, 4, 8, 16]))
    pp = data.draw(st.integers(1, min(9, model.layers)))
    page_size = 128 * data.draw(st.integers(1, 4))
    stages = model.stages(pp)
    for name in model.components:
        whole = sum(by_hand(pool, page_size, tp) for pool in model.pools_of(name))
        assert model.bytes_per_page(name, page_size, tp) == whole
        assert sum(stage.bytes_per_page(name, page_size, tp) for stage in stages) == whole
    for number, pool in enumerate(model.pools):
        shards = [stage.pools[number].layers for stage in stages]
        assert tuple(layer for shard in shards for layer in shard) == pool.layers
        if not pool.page_rows:
            assert pool.token_bytes(tp) * page_size == by_hand(pool, page_size, tp)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_total_of_bytes_is_the_total_of_all_pools_on_all_ranks(data: st.DataObject) -> None:
    model = models.get(data.draw(st.sampled_from(models.names())))
    tp, pp = data.draw(st.sampled_from([1, 2, 8])), data.draw(st.integers(1, 4))
    device = {name: data.draw(st.integers(1, 10_000)) for name in model.components}
    total = data.draw(st.integers(1, 4000)) * GIB
    least = {
        name: tp * sum(by_hand(pool, 256, tp) for pool in model.pools_of(name)) for name in device
    }
    if sum(least.values()) > total:
        with pytest.raises(CallerError, match=r"host_bytes.*at least"):
            plan_pools(model, 256, device, total_bytes=total, tp=tp, pp=pp)
        return
    plan = plan_pools(model, 256, device, total_bytes=total, tp=tp, pp=pp)
    taken = sum(least[name] * pages for name, pages in plan.pages.items())
    assert taken == plan.total_bytes == tp * sum(sum(stage.values()) for stage in plan.bytes)
    assert taken <= total
    assert min(plan.pages.values()) >= 1
    # nor is there room for one more page of each
    assert taken + sum(least.values()) > total


def test_a_plan_by_ratio_has_at_least_a_page_more_than_the_device() -> None:
    model = models.get("gpt-oss-120b")
    plan = plan_pools(model, 64, {"full": 10, "swa": 3}, ratio=Fraction(5, 2), tp=2, pp=2)
    assert plan.pages == {"full": 25, "swa": 7}
    assert plan.total_bytes == (25 + 7) * 64 * 18 * 2 * 8 * 64 * 2
    for wrong in ({"ratio": Fraction(2), "total_bytes": GIB}, {}):
        with pytest.raises(CallerError, match="a ratio or a total"):
            plan_pools(model, 64, {"full": 1, "swa": 1}, **wrong)  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="expected sizes for full, swa, found full"):
        plan_pools(model, 64, {"full": 1}, ratio=Fraction(2))


def test_bytes_per_token_equal_the_published_figures() -> None:
    found = {name: models.get(name).bytes_per_token() for name in PUBLISHED_BYTES_PER_TOKEN}
    assert found == PUBLISHED_BYTES_PER_TOKEN


def test_ranks_divide_heads_until_there_is_one_each_and_never_a_latent() -> None:
    llama, deepseek = models.get("llama-3.1-8b"), models.get("deepseek-v3")
    assert [llama.bytes_per_token(tp) for tp in (2, 4, 8, 16)] == [65536, 32768, 16384, 16384]
    assert [deepseek.bytes_per_token(tp) for tp in (2, 8, 128)] == [70_272] * 3
    for tp in (0, -1, 3):
        with pytest.raises(CallerError, match="divisor or a multiple of 8 heads"):
            llama.bytes_per_token(tp)


@pytest.mark.parametrize("name", COUNTED)
def test_parameters_of_dense_models_equal_the_sum_of_their_matrices(name: str) -> None:
    assert models.get(name).parameters == COUNTED[name]


def test_parameters_of_deepseek_v3_equal_the_sum_of_its_matrices() -> None:
    attention = matrices(
        [(1536, 7168), (128 * 192, 1536), (576, 7168), (128 * 256, 512), (7168, 128 * 128)]
    )
    norms = 2 * 7168 + 1536 + 512
    expert = 3 * 2048 * 7168
    gate = 256 * 7168 + 256
    always = 61 * (attention + norms) + 3 * 3 * 18432 * 7168 + 58 * (gate + expert)
    always += 7168 + 2 * 129_280 * 7168
    model = models.get("deepseek-v3")
    assert model.parameters == always + 58 * 256 * expert
    assert model.active_parameters == always + 58 * 8 * expert
    assert model.expert_parameters == 58 * expert
    assert (model.parameters // 10**9, model.active_parameters // 10**9) == (671, 37)


def test_parameters_of_sparse_models_equal_the_sum_of_their_matrices() -> None:
    found = {
        name: (models.get(name).parameters, models.get(name).active_parameters) for name in SPARSE
    }
    assert found == SPARSE
    assert [models.get("gemma-3-27b").parameters] == [
        62 * (2 * 4096 * 5376 + 2 * 2048 * 5376 + 3 * 21504 * 5376 + 4 * 5376 + 2 * 128)
        + 5376
        + 262_208 * 5376
    ]
    billions = {name: (total / 1e9, active / 1e9) for name, (total, active) in SPARSE.items()}
    assert billions["gpt-oss-120b"] == pytest.approx((116.83, 5.13 + 0.58), abs=0.005)
    assert billions["deepseek-v4-flash"] == pytest.approx((284.33, 13), rel=0.07)
    assert billions["deepseek-v4-pro"] == pytest.approx((1600, 49), rel=0.03)
    assert billions["qwen3.5-397b-a17b"] == pytest.approx((397, 17), rel=0.03)


def test_deepseek_v4_takes_the_published_bytes_for_a_million_tokens() -> None:
    """9.62 GiB of bf16 a sequence (vLLM's post on DeepSeek-V4-Pro), and the 584 and 132 bytes of a
    row and an index key as served."""
    pro = models.get("deepseek-v4-pro")
    ratios = [4 if n in pro.pools[1].layers else 128 for n in range(pro.layers)]
    plain = deepseek_v4.describe(
        "plain", "test", ratios=ratios, hidden_size=1, vocabulary=1, attention_heads=1,
        head_elements=512, rope_elements=64, index_elements=128, window=128, parameters=2,
        active_parameters=2, experts=0, experts_per_token=0, quantized=False,
    )  # fmt: skip
    window = plain.bytes_per_page("swa", 128) - sum(
        pool.page_bytes(128) for pool in plain.pools if pool.kind == "state"
    )
    taken = plain.bytes_per_page("full", 1 << 20) + window
    assert taken / GIB == pytest.approx(9.62, abs=0.005)
    rows = {pool.name: pool.row_bytes(8) for pool in pro.pools}
    assert rows == {
        "logical": 0, "c4": 584, "c4_indexer": 132, "c128": 584, "swa": 584,
        "c4_state": 4 * 512 * 4, "c4_indexer_state": 4 * 128 * 4, "c128_state": 2 * 512 * 4,
    }  # fmt: skip
    assert {pool.name: pool.anchor for pool in pro.pools if pool.anchor} == {
        "c4": "logical", "c4_indexer": "logical", "c128": "logical",
        "c4_state": "swa", "c4_indexer_state": "swa", "c128_state": "swa",
    }  # fmt: skip
    assert pro.pools[0].page_bytes(256) == 0
    assert [pool.rows_per_page(256) for pool in pro.pools] == [256, 64, 64, 2, 256, 8, 8, 128]


def test_a_state_takes_one_slot_at_every_page_size() -> None:
    model = models.get("qwen3-next-80b-a3b")
    state = 36 * (32 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 32 * 128) * 2)
    assert {model.bytes_per_page("mamba", size) for size in (1, 64, 256)} == {state}
    assert model.bytes_per_page("mamba", 64, 4) == state // 4
    assert [pool.trailing_pages(64) for pool in model.pools] == [0, 1, 1]
    assert [pool.trailing_pages(100) for pool in models.get("gpt-oss-120b").pools] == [0, 2]


def test_page_size_must_be_a_multiple_of_the_compression_group() -> None:
    pro = models.get("deepseek-v4-pro")
    for size, ratio in ((2, 4), (6, 4), (64, 128), (192, 128)):
        with pytest.raises(CallerError, match=f"page_size: expected a multiple of {ratio}.*{size}"):
            pro.bytes_per_page("full", size)
    assert pro.bytes_per_page("full", 128) * 2 == pro.bytes_per_page("full", 256)


def test_draft_layers_come_after_the_layers_of_the_model() -> None:
    for name, anchor in (("gpt-oss-120b", "swa"), ("deepseek-v4-pro", "logical")):
        model = models.get(name)
        like = models.get("llama-3.1-8b").pools[0]
        made = draft.with_draft(model, "with", "test", like=like, anchor=anchor, layers=2)
        added = made.pools[-1]
        assert (added.component, added.anchor) == (
            {"swa": "swa", "logical": "full"}[anchor],
            anchor,
        )
        assert added.layers == (model.layers, model.layers + 1)
        more = made.bytes_per_page(added.component, 128) - model.bytes_per_page(
            added.component, 128
        )
        assert more == 128 * 2 * 2 * 8 * 128 * 2
        assert [bool(stage.pools[-1].layers) for stage in made.stages(2)] == [False, True]
    with pytest.raises(CallerError, match="anchor: expected an earlier pool of component full"):
        draft.with_draft(model, "with", "test", like=like, anchor="nothing", layers=1)


@pytest.mark.parametrize(
    ("changed", "said"),
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
def test_an_impossible_pool_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(CallerError, match=f"pool kv: {said}"):
        replace(models.get("llama-3.1-8b").pools[0], **changed)


def test_quantisation_scales_are_counted() -> None:
    kv = models.get("llama-3.1-8b").pools[0]
    # fp8 halves bf16; mxfp4 is 4 bits and a byte per 32; nvfp4 4 bits and a byte per 16
    assert replace(kv, dtype="fp8").row_bytes() == 8 * 128
    assert replace(kv, dtype="fp4", scale_group=32, scale_bytes=1).row_bytes() == 8 * (64 + 4)
    assert replace(kv, dtype="fp4", scale_group=16, scale_bytes=1).row_bytes(4) == 2 * (64 + 8)


def test_unknown_names_are_refused_with_those_that_exist() -> None:
    with pytest.raises(CallerError, match=r"deepseek-v3.*did you mean llama-3\.1-8b"):
        models.get("llama-3-8b")
    with pytest.raises(CallerError, match="expected one of full"):
        models.get("llama-3.1-8b").bytes_per_page("swa", 64)
    with pytest.raises(CallerError, match="page_size"):
        models.get("llama-3.1-8b").bytes_per_page("full", 0)
