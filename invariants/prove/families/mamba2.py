"""Mamba-2: states alone."""

from __future__ import annotations

from transformers import Mamba2Config, PretrainedConfig, PreTrainedModel

from ._memory import lengthen_memory
from .base import VOCABULARY

SUMMARY = "states alone"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        Mamba2Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            num_hidden_layers=3,
            num_heads=8,
            head_dim=16,
            state_size=8,
            n_groups=2,
            chunk_size=16,
            initializer_range=0.1,
        ),
    )


def prepare(model: PreTrainedModel) -> None:
    lengthen_memory(model)
