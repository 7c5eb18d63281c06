"""DeepSeek V3.2: latents, and an indexer that selects the tokens that attention may see."""

from __future__ import annotations

from transformers import DeepseekV32Config, PretrainedConfig

from .base import VOCABULARY

SUMMARY = "latents (MLA) and keys of an indexer that selects tokens"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        DeepseekV32Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            moe_intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=4,
            n_shared_experts=1,
            n_routed_experts=4,
            num_experts_per_tok=2,
            n_group=1,
            topk_group=1,
            first_k_dense_replace=3,
            kv_lora_rank=24,
            q_lora_rank=32,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=16,
            index_topk=16,
            index_head_dim=16,
            index_n_heads=64,
            initializer_range=0.1,
        ),
    )
