"""Llama: keys and values of every token, with fewer heads for them than for queries."""

from __future__ import annotations

from transformers import LlamaConfig, PretrainedConfig

from .base import VOCABULARY

SUMMARY = "keys and values, grouped heads"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            initializer_range=0.1,
        ),
    )
