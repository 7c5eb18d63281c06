"""DeepSeek V3: one latent and one rotated key per token, and experts."""

from __future__ import annotations

from transformers import DeepseekV3Config, PretrainedConfig

from .base import VOCABULARY

SUMMARY = "latents (MLA), experts"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        DeepseekV3Config(
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
            first_k_dense_replace=2,
            kv_lora_rank=24,
            q_lora_rank=32,
            qk_rope_head_dim=8,
            qk_nope_head_dim=16,
            v_head_dim=16,
            num_mtp_layers=0,
            initializer_range=0.1,
        ),
    )
