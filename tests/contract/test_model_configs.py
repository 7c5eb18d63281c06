"""Models from a `config.json`: as many parameters as the library transformers makes of the same
configuration, the sizes that publishers name, what the source says, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.core.errors import CallerError
from tests.tiny import LLAMA

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
