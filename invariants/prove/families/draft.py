"""A llama and a smaller llama that drafts for it: two caches, which hold the same tokens."""

from __future__ import annotations

from transformers import LlamaConfig, PretrainedConfig

from .base import VOCABULARY

SUMMARY = "a model with a draft model (assisted generation)"


def configurations() -> tuple[PretrainedConfig, ...]:
    shared = {"vocab_size": VOCABULARY, "intermediate_size": 96, "initializer_range": 0.1}
    return (
        LlamaConfig(
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=4,
            num_key_value_heads=2,
            **shared,
        ),
        LlamaConfig(
            hidden_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            **shared,
        ),
    )
