"""Qwen3-Next: gated delta rule in most layers, full attention in one, experts."""

from __future__ import annotations

from transformers import PretrainedConfig, PreTrainedModel, Qwen3NextConfig

from ._memory import lengthen_memory
from .base import VOCABULARY

SUMMARY = "linear attention (states) and full attention, experts"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        Qwen3NextConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            linear_conv_kernel_dim=4,
            linear_key_head_dim=8,
            linear_value_head_dim=8,
            linear_num_key_heads=2,
            linear_num_value_heads=4,
            moe_intermediate_size=32,
            shared_expert_intermediate_size=32,
            num_experts=4,
            num_experts_per_tok=2,
            layer_types=[
                "linear_attention",
                "linear_attention",
                "linear_attention",
                "full_attention",
            ],
            initializer_range=0.1,
        ),
    )


def prepare(model: PreTrainedModel) -> None:
    lengthen_memory(model)
