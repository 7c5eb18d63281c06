"""What every model description owes its users; models from a `config.json`, with as many parameters
as the library transformers makes of it; the types of weights and cached rows that may be named."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache import models
from hicache.core.errors import CallerError
from hicache.memory.pools import by_total
from hicache.models import PoolDescription
from tests.tiny import LLAMA

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


TYPES: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True, "tie_word_embeddings": True},
    "mistral": {"sliding_window": None},
    "mixtral": {},
    "qwen2": {},
    "qwen2_moe": {},
    "qwen3_moe": {},
    "qwen3_next": {},
    "gemma2": {},
    "gemma3_text": {},
    "gpt_oss": {},
    "deepseek_v2": {"n_routed_experts": 64, "num_experts_per_tok": 6},
    "deepseek_v3": {},
    "deepseek_v32": {},
    "llama4_text": {},
    "bamba": {"attn_layer_indices": [9, 18, 27]},
    "granitemoehybrid": {"layer_types": ["mamba", "mamba", "mamba", "attention"] * 8},
}


@pytest.mark.parametrize("kind", TYPES)
def test_every_parameter_of_the_library_is_counted(kind: str) -> None:
    torch = pytest.importorskip("torch", exc_type=ImportError)
    transformers = pytest.importorskip("transformers", exc_type=ImportError)
    config = transformers.AutoConfig.for_model(kind, **TYPES[kind])
    with torch.device("meta"):
        made = transformers.AutoModelForCausalLM.from_config(config)
    own = sum(parameter.numel() for parameter in made.parameters())
    biases = [item.numel() for name, item in made.named_buffers() if "correction" in name]
    model = models.described(json.loads(config.to_json_string()), kind, kind)
    assert model.parameters == own + sum(biases)
    pools = {layer for pool in model.pools for layer in pool.layers}
    assert pools == set(range(model.layers))


def test_a_folder_is_read_and_the_source_names_what_was_taken(tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    more = {"torch_dtype": "float16", "quantization_config": {"quant_method": "fp8"}}
    path = folder / "config.json"
    path.write_text(json.dumps({"text_config": LLAMA, "model_type": "other", **more}))
    model = models.get(str(folder))
    assert model == models.get(str(path))
    assert (model.name, model.family, model.kv_dtype, model.weight_dtype) == (
        *("my-model", "mha", "fp16", "fp8"),
    )
    assert model.bytes_per_token() == 4 * 2 * 2 * 16 * 2
    for taken in ("num_hidden_layers 4", "num_key_value_heads 2", 'torch_dtype "float16"'):
        assert taken in model.source


def test_windows_latents_and_states_are_pools_of_their_own() -> None:
    def pools(**more: Any) -> dict[str, tuple[str, int, int]]:
        model = models.described({**LLAMA, **more}, "own", "own")
        return {pool.name: (pool.component, len(pool.layers), pool.window) for pool in model.pools}

    window = {"sliding_window": 32, "sliding_window_pattern": 2}
    assert pools(**window) == {"kv": ("full", 2, 0), "swa": ("swa", 2, 32)}
    assert pools(**window, use_sliding_window=False) == {"kv": ("full", 4, 0)}
    assert pools(sliding_window=32, max_window_layers=3)["swa"] == ("swa", 1, 32)
    latents = {"kv_lora_rank": 8, "qk_rope_head_dim": 2, "qk_nope_head_dim": 4, "v_head_dim": 4}
    sparse = {"index_topk": 16, "index_head_dim": 8, "index_n_heads": 2}
    assert list(pools(**latents, **sparse)) == ["kv", "indexer"]
    mamba = {"mamba_n_heads": 8, "mamba_d_state": 16, "mamba_n_groups": 1, "mamba_d_conv": 4}
    states = pools(**mamba, attn_layer_indices=[1])
    assert states == {"kv": ("full", 1, 0), "ssm": ("mamba", 3, 1), "conv": ("mamba", 3, 1)}


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"num_hidden_layers": None}, "num_hidden_layers: expected an integer from 1 to 16384"),
        ({"hidden_size": "64"}, "hidden_size: expected an integer"),
        ({"layer_types": ["full_attention"]}, "layer_types: expected 4 layers, found 1"),
        ({"layer_types": ["other"] * 4}, "layer_types[0]: expected one of full_attention"),
        ({"sliding_window": 32}, "layer_types: expected some layers of full attention"),
        ({"num_kv_shared_layers": 2}, "num_kv_shared_layers: expected no such key"),
        ({"dtype": "int8"}, 'dtype: expected one of bfloat16, float16, float32, found "int8"'),
        ({"quantization_config": {"quant_method": "new"}}, "quantization_config: expected fp8"),
        ({"compress_ratios": [2] * 4, "head_dim": 8}, "index_head_dim: expected an integer"),
    ],
)
def test_what_is_not_described_is_refused_with_its_key(changed: Any, text: str) -> None:
    with pytest.raises(CallerError) as caught:
        models.described({**LLAMA, **changed}, "own", "own")
    assert str(caught.value).startswith(f"own: {text}")


def types(name: str, precision: str) -> dict[str, str]:
    """The type of each part of the model's checkpoint of a precision."""
    checkpoint = models.checkpoint(models.get(name), precision)
    return {item.part: item.dtype for item in checkpoint.matrices}


def test_a_checkpoint_has_the_types_that_its_publisher_chose() -> None:
    kept = {"router": "bf16", "other": "bf16"}
    fp4, block = "nvfp4", "fp8-block"
    for name, precision, message in (
        ("llama-3.1-70b", "bf16", {"attention": "bf16", "mlp": "bf16"}),
        ("llama-3.1-70b", "fp4", {"attention": fp4, "mlp": fp4}),
        ("qwen3-32b", "fp8", {"attention": "fp8", "mlp": "fp8"}),
        ("qwen3-8b", "int4", {"attention": "int4", "mlp": "int4"}),
        ("deepseek-v3", "fp8", {"attention": block, "mlp": block, "experts": block}),
        ("deepseek-v3", "fp4", {"attention": "bf16", "mlp": fp4, "experts": fp4}),
        ("qwen3.5-397b-a17b", "fp8", {"attention": block, "mlp": block, "experts": block}),
        ("qwen3.5-397b-a17b", "fp4", {"attention": "bf16", "mlp": "bf16", "experts": fp4}),
        ("qwen3-235b-a22b", "fp8", {"attention": block, "experts": block}),
        ("gpt-oss-120b", "fp4", {"attention": "bf16", "experts": "mxfp4"}),
        ("gpt-oss-120b", "nvfp4", {"attention": "bf16", "experts": fp4}),
        ("deepseek-v4-pro", "nvfp4", {"attention": block, "mlp": block, "experts": fp4}),
    ):
        result = types(name, precision)
        message |= {part: dtype for part, dtype in kept.items() if part in result}
        assert result == message, (name, precision)
    published = models.get("deepseek-v3")
    assert models.checkpoint(published, "fp8") == published
    with pytest.raises(CallerError, match="precision: expected one of bf16, fp8, fp4, nvfp4"):
        models.checkpoint(published, "fp6")


# -- the bytes of stored weights


def test_another_type_of_weights_changes_all_but_the_embeddings() -> None:
    llama = models.get("llama-3.1-8b")
    norms = (2 * 32 + 1) * 4096
    tables = 2 * 128_256 * 4096
    matrices = llama.parameters - tables - norms
    for dtype, bits in (
        ("bf16", 16),
        ("fp8", 8),
        ("fp8-block", 8 + 1 / 512),
        ("int4", 4.125),
        ("mxfp4", 4.25),
        ("nvfp4", 4.5),
    ):
        result = models.stored(llama, dtype)
        assert result.weight_dtype == dtype
        stay = 2 * (tables + norms)
        assert result.weight_bytes == pytest.approx(stay + matrices * bits / 8, abs=1)
        assert result.bytes_per_token() == llama.bytes_per_token()
    with pytest.raises(
        CallerError, match="weight_dtype: expected one of bf16, fp8, fp8-block, int4,"
    ):
        models.stored(llama, "int2")


def test_another_type_of_cache_changes_rows_and_neither_states_nor_index_keys() -> None:
    dtypes = {
        name: {pool.name: pool.dtype for pool in models.cached_as(models.get(name), "fp8").pools}
        for name in ("gpt-oss-120b", "deepseek-v3.2", "qwen3-next-80b-a3b", "llama-3.1-8b-eagle3")
    }
    assert dtypes == {
        "gpt-oss-120b": {"kv": "fp8", "swa": "fp8"},
        "deepseek-v3.2": {"kv": "fp8", "indexer": "fp8"},
        "qwen3-next-80b-a3b": {"kv": "fp8", "ssm": "fp32", "conv": "bf16"},
        "llama-3.1-8b-eagle3": {"kv": "fp8", "draft": "fp8"},
    }
    with pytest.raises(CallerError, match="kv_dtype: expected a model with plain rows, found deep"):
        models.cached_as(models.get("deepseek-v4-pro"), "bf16")
    with pytest.raises(CallerError, match="kv_dtype: expected one of fp32, bf16, fp16, fp8"):
        models.cached_as(models.get("llama-3.1-8b"), "int8")
