"""Small models of random weights that vLLM serves on a CPU, as data: one row for each family.

Sizes are those that its kernels for CPUs take: blocks of 32 tokens, and heads of 128 for linear
attention, in bf16.
"""

from __future__ import annotations

from typing import Any, NamedTuple

VOCABULARY = 1000


class Family(NamedTuple):
    """classes: of the library `transformers`, the configuration and the model. config: its fields.
    engine: arguments of vLLM that the family needs. window: tokens of a sliding window; 0: none.
    groups: of layers, each with blocks of its own; 0: some have states, which are no blocks of a
    prompt. what: in words. slow: too slow for many answers; runs where it is named."""

    classes: tuple[str, str]
    config: dict[str, Any]
    engine: dict[str, Any]
    what: str
    window: int = 0
    groups: int = 1
    slow: bool = False


_COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32768,
    "eos_token_id": None,
    "bos_token_id": None,
}
_FLOAT = {"dtype": "float32", "block_size": 32}

FAMILIES = {
    "llama": Family(
        ("LlamaConfig", "LlamaForCausalLM"),
        _COMMON | {"num_hidden_layers": 2},
        _FLOAT,
        "full attention",
    ),
    "llama-wide": Family(
        ("LlamaConfig", "LlamaForCausalLM"),
        _COMMON
        | {
            "hidden_size": 512,
            "intermediate_size": 1408,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "num_hidden_layers": 4,
        },
        _FLOAT,
        "full attention, so wide that its kernels take longer than the host",
        slow=True,
    ),
    "gemma3": Family(
        ("Gemma3TextConfig", "Gemma3ForCausalLM"),
        _COMMON | {"num_hidden_layers": 6, "head_dim": 32, "sliding_window": 64},
        _FLOAT,
        "full attention and a sliding window",
        64,
        6,
    ),
    "qwen3": Family(
        ("Qwen3Config", "Qwen3ForCausalLM"),
        _COMMON | {"num_hidden_layers": 2, "head_dim": 32},
        _FLOAT,
        "full attention with normalized queries and keys",
    ),
    "gpt-oss": Family(
        ("GptOssConfig", "GptOssForCausalLM"),
        _COMMON
        | {
            "num_hidden_layers": 4,
            "head_dim": 32,
            "sliding_window": 64,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
        },
        _FLOAT,
        "full attention and a sliding window in turn, sinks, a mixture of experts",
        64,
        2,
    ),
    "qwen3-next": Family(
        ("Qwen3NextConfig", "Qwen3NextForCausalLM"),
        _COMMON
        | {
            "num_hidden_layers": 4,
            "head_dim": 128,
            "linear_key_head_dim": 128,
            "linear_value_head_dim": 128,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 64,
            "shared_expert_intermediate_size": 64,
        },
        {"dtype": "bfloat16"},
        "full attention and a recurrence (GDN), a mixture of experts",
        groups=0,
        slow=True,
    ),
}
