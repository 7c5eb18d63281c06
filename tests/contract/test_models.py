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
    "mistral-nemo-12b": 40 * 2 * 8 * 128 * 2,
    "qwen2.5-7b": 28 * 2 * 4 * 128 * 2,
    "yi-34b": 60 * 2 * 8 * 128 * 2,
    "llama-4-scout": 48 * 2 * 8 * 128 * 2,
    "qwen3-next-80b-a3b": 12 * 2 * 2 * 256 * 2,
    "qwen3.5-397b-a17b": 15 * 2 * 2 * 256 * 2,
    # 1,152 bytes of latent, and an index key of 128 bytes with a 4-byte scale
    "deepseek-v3.2": 61 * (1152 + 132),
    "llama-3.1-8b-eagle3": 33 * 4096,
    "deepseek-v3-mtp": 62 * 1152,
}


# All parameters and those that a token meets, summed matrix by matrix over the checkpoint's weights
# (norms, biases and convolutions included).
PARAMETERS = {
    "llama-3.1-8b": (8_030_261_248, 8_030_261_248),
    "llama-3.1-70b": (70_553_706_496, 70_553_706_496),
    "qwen3-32b": (32_762_123_264, 32_762_123_264),
    "qwen3-8b": (8_190_735_360, 8_190_735_360),
    "llama-2-7b": (6_738_415_616, 6_738_415_616),
    "llama-2-70b": (68_976_648_192, 68_976_648_192),
    "mistral-7b": (7_248_023_552, 7_248_023_552),
    "mistral-nemo-12b": (12_247_782_400, 12_247_782_400),
    "qwen2.5-7b": (7_615_616_512, 7_615_616_512),
    "yi-34b": (34_388_917_248, 34_388_917_248),
    "llama-4-scout": (107_769_861_120, 17_172_894_720),
    "gemma-3-27b": (27_009_346_304, 27_009_346_304),
    "gpt-oss-120b": (116_829_156_672, 5_711_982_912),
    "qwen3-235b-a22b": (235_093_634_560, 22_190_763_520),
    "qwen3-next-80b-a3b": (79_674_391_296, 3_874_929_408),
    "qwen3.5-397b-a17b": (396_346_350_336, 17_349_040_896),
    "deepseek-v3": (671_026_419_200, 37_552_297_472),
    "deepseek-v3.2": (671_877_944_064, 38_403_822_336),
    "deepseek-v4-pro": (1_572_997_201_763, 49_779_081_059),
    "deepseek-v4-flash": (284_332_240_471, 13_799_632_471),
}


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
            plan_pools(model, 256, device, total_bytes=total, tp=tp, pp=pp, among=not shared)
        return
    plan = plan_pools(model, 256, device, total_bytes=total, tp=tp, pp=pp, among=not shared)
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
    kv, latent = llama.pools[0], deepseek.pools[0]
    assert [kv.copies(tp) for tp in (1, 4, 8, 16, 32)] == [1, 1, 1, 2, 4]
    assert [latent.copies(tp) for tp in (1, 4, 16)] == [1, 4, 16]
    assert (kv.replicated, latent.replicated) == (False, True)


def test_parameters_are_the_sum_of_the_weights() -> None:
    found = {name: models.get(name) for name in PARAMETERS}
    counts = {name: (one.parameters, one.active_parameters) for name, one in found.items()}
    assert counts == PARAMETERS
    assert found["deepseek-v3"].expert_parameters == 58 * 3 * 2048 * 7168
    # as their publishers round them, in billions
    for name, total, active, within in (
        ("deepseek-v3", 671, 37, 0.02),
        ("gpt-oss-120b", 116.83, 5.13 + 0.58, 0.001),
        ("deepseek-v4-flash", 284.33, 13, 0.07),
        ("deepseek-v4-pro", 1600, 49, 0.03),
        ("qwen3.5-397b-a17b", 397, 17, 0.03),
    ):
        billions = tuple(count / 1e9 for count in counts[name])
        assert billions == pytest.approx((total, active), rel=within)


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
