"""Models beside the eleven families, small and with random weights: their caches can be cut."""

from __future__ import annotations

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, logging

from .rig import Rig
from .test_passes import ROUNDING, apart

SMALL = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "moe_intermediate_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "n_embd": 32,
    "n_layer": 4,
    "n_head": 4,
    "ffn_dim": 64,
    "word_embed_proj_dim": 32,
    "sliding_window": 12,
    "max_position_embeddings": 256,
    "n_positions": 256,
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS = (
    *("bloom", "cohere2", "exaone4", "falcon", "gemma2", "glm4", "glm4_moe", "gpt2", "gpt_neox"),
    *("lfm2", "llama4_text", "mistral", "mixtral", "olmo2", "olmo3", "opt", "phi3", "qwen2"),
    *("qwen3", "qwen3_5_text", "qwen3_moe", "smollm3", "stablelm", "starcoder2"),
)


@pytest.mark.one_in(8)
@pytest.mark.parametrize("name", MODELS)
def test_chunks_steps_and_hits_are_a_run_without_a_cache(name: str) -> None:
    logging.set_verbosity_error()
    made = CONFIG_MAPPING[name]()
    known = made.to_dict()
    fields = {key: value for key, value in SMALL.items() if key in known}
    types = known.get("layer_types")
    if types:
        fields["layer_types"] = [*dict.fromkeys(types)] * 4
        fields["layer_types"] = fields["layer_types"][:4]
    torch.manual_seed(0)
    rig = Rig(AutoModelForCausalLM.from_config(CONFIG_MAPPING[name](**fields)).eval(), 8)
    cold = rig.cold()
    chunks = [rig.prefill(first, end) for first, end in ((0, 13), (13, 37), (37, 64))]
    steps = [rig.decode(length) for length in range(65, 75)]
    assert apart(torch.cat([*chunks, *steps]), cold[:74]) < ROUNDING * cold.std()
    for depth in (64, 40):
        assert apart(rig.again(depth), cold[depth:]) < ROUNDING * cold.std()
