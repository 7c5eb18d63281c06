"""Gemma 3: most layers see a window, one sees everything."""

from __future__ import annotations

from transformers import Gemma3TextConfig, PretrainedConfig

from .base import VOCABULARY

SUMMARY = "windows, one layer in three full"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        Gemma3TextConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            query_pre_attn_scalar=16,
            sliding_window=12,
            layer_types=["sliding_attention", "sliding_attention", "full_attention"],
            initializer_range=0.1,
        ),
    )
