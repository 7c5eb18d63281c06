"""gpt-oss: windows and full layers in turns, sinks, experts."""

from __future__ import annotations

from transformers import GptOssConfig, PretrainedConfig

from .base import VOCABULARY

SUMMARY = "windows and full attention in turns, sinks, experts"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        GptOssConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=48,
            num_hidden_layers=4,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            num_local_experts=4,
            num_experts_per_tok=2,
            sliding_window=10,
            layer_types=["sliding_attention", "full_attention"] * 2,
            initializer_range=0.1,
        ),
    )
