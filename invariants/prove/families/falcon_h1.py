"""Falcon-H1: a state and full attention in each layer."""

from __future__ import annotations

from transformers import FalconH1Config, PretrainedConfig, PreTrainedModel

from ._memory import lengthen_memory
from .base import VOCABULARY

SUMMARY = "states and full attention in one layer"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        FalconH1Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            mamba_d_ssm=128,
            mamba_n_heads=8,
            mamba_d_head=16,
            mamba_n_groups=1,
            mamba_d_state=8,
            mamba_chunk_size=16,
            initializer_range=0.1,
        ),
    )


def prepare(model: PreTrainedModel) -> None:
    lengthen_memory(model)
