"""The families of attention: small models with random weights, as configurations of the library.

A family has a configuration for each model that runs on the same tokens, the target first; a draft
model is the second. The vocabulary is small for speed. Does not need the library (see building).
"""

from __future__ import annotations

from typing import Any

VOCABULARY = 97
_SHARED = {"vocab_size": VOCABULARY, "hidden_size": 64, "initializer_range": 0.1}
_GROUPED = _SHARED | {"num_attention_heads": 4, "num_key_value_heads": 2}
_LAYERS = _GROUPED | {"num_hidden_layers": 3, "intermediate_size": 96}
_LATENTS = _LAYERS | {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "kv_lora_rank": 24,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
}

Configurations = tuple[tuple[str, dict[str, Any]], ...]  # a class of the library, and its settings
FAMILIES: dict[str, Configurations] = {
    # latents: one and one rotated key per token; experts
    "deepseek-v3": (
        ("DeepseekV3Config", _LATENTS | {"first_k_dense_replace": 2, "num_mtp_layers": 0}),
    ),
    # latents, and keys of an indexer that selects the tokens that attention may see
    "deepseek-v32": (
        (
            "DeepseekV32Config",
            _LATENTS
            | {
                "first_k_dense_replace": 3,
                "index_topk": 16,
                "index_head_dim": 16,
                "index_n_heads": 64,
            },
        ),
    ),
    # a window in each layer, beside it compressed entries, and an indexer over them
    "deepseek-v4": (
        (
            "DeepseekV4Config",
            _SHARED
            | {
                "moe_intermediate_size": 32,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "head_dim": 16,
                "q_lora_rank": 32,
                "n_shared_experts": 1,
                "n_routed_experts": 4,
                "num_experts_per_tok": 2,
                "compress_rates": {
                    "compressed_sparse_attention": 4,
                    "heavily_compressed_attention": 8,
                },
                "layer_types": [
                    "compressed_sparse_attention",
                    "heavily_compressed_attention",
                    "sliding_attention",
                ],
                "mlp_layer_types": ["hash_moe", "moe", "moe"],
                "sliding_window": 12,
                "hc_mult": 2,
                "o_groups": 2,
                "o_lora_rank": 16,
                "index_n_heads": 64,
                "index_head_dim": 16,
                "index_topk": 6,
                "partial_rotary_factor": 0.5,
            },
        ),
    ),
    # a llama and a smaller llama that drafts for it: two caches, which hold the same tokens
    "draft": (
        ("LlamaConfig", _LAYERS),
        (
            "LlamaConfig",
            _LAYERS
            | {
                "hidden_size": 32,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
            },
        ),
    ),
    # a state and full attention in each layer
    "falcon-h1": (
        (
            "FalconH1Config",
            _LAYERS
            | {
                "num_hidden_layers": 2,
                "mamba_d_ssm": 128,
                "mamba_n_heads": 8,
                "mamba_d_head": 16,
                "mamba_n_groups": 1,
                "mamba_d_state": 8,
                "mamba_chunk_size": 16,
            },
        ),
    ),
    # most layers see a window, one sees everything
    "gemma3": (
        (
            "Gemma3TextConfig",
            _LAYERS
            | {
                "head_dim": 16,
                "query_pre_attn_scalar": 16,
                "sliding_window": 12,
                "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
            },
        ),
    ),
    # windows and full layers in turns, sinks, experts
    "gpt-oss": (
        (
            "GptOssConfig",
            _GROUPED
            | {
                "intermediate_size": 48,
                "num_hidden_layers": 4,
                "head_dim": 16,
                "num_local_experts": 4,
                "num_experts_per_tok": 2,
                "sliding_window": 10,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
        ),
    ),
    # keys and values of every token, with fewer heads for them than for queries
    "llama": (("LlamaConfig", _LAYERS),),
    # states alone
    "mamba2": (
        (
            "Mamba2Config",
            _SHARED
            | {
                "num_hidden_layers": 3,
                "num_heads": 8,
                "head_dim": 16,
                "state_size": 8,
                "n_groups": 2,
                "chunk_size": 16,
            },
        ),
    ),
    # states, full attention and layers without a cache, each on its own
    "nemotron-h": (
        (
            "NemotronHConfig",
            _GROUPED
            | {
                "layers_block_type": [
                    "linear_attention",
                    "mlp",
                    "full_attention",
                    "linear_attention",
                ],
                "head_dim": 16,
                "intermediate_size": 96,
                "ssm_state_size": 8,
                "mamba_num_heads": 8,
                "mamba_head_dim": 16,
                "n_groups": 2,
                "conv_kernel": 4,
                "chunk_size": 16,
                # The library raises time steps to this in a pass of several tokens and forgets to
                # in a pass of one, so with its default of 0.001 decoding differs from a cold run.
                "time_step_min": 1e-12,
            },
        ),
    ),
    # gated delta rule in most layers, full attention in one, experts
    "qwen3-next": (
        (
            "Qwen3NextConfig",
            _LAYERS
            | {
                "num_hidden_layers": 4,
                "head_dim": 16,
                "linear_conv_kernel_dim": 4,
                "linear_key_head_dim": 8,
                "linear_value_head_dim": 8,
                "linear_num_key_heads": 2,
                "linear_num_value_heads": 4,
                "moe_intermediate_size": 32,
                "shared_expert_intermediate_size": 32,
                "num_experts": 4,
                "num_experts_per_tok": 2,
                "layer_types": ["linear_attention"] * 3 + ["full_attention"],
            },
        ),
    ),
}
WITH_STATES = ("falcon-h1", "mamba2", "nemotron-h", "qwen3-next")


def names() -> list[str]:
    return [*FAMILIES]
