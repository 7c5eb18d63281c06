"""Nemotron-H: Mamba-2, attention and plain layers, each on its own.

The library raises time steps to `time_step_min` in a pass of several tokens and forgets to in a
pass of one, so with its default of 0.001 decoding differs from a cold run. Here it is so small
that both are the same.
"""

from __future__ import annotations

from transformers import NemotronHConfig, PretrainedConfig, PreTrainedModel

from ._memory import lengthen_memory
from .base import VOCABULARY

SUMMARY = "states, full attention and layers without a cache"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        NemotronHConfig(
            vocab_size=VOCABULARY,
            hidden_size=64,
            layers_block_type=["linear_attention", "mlp", "full_attention", "linear_attention"],
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=16,
            intermediate_size=96,
            ssm_state_size=8,
            mamba_num_heads=8,
            mamba_head_dim=16,
            n_groups=2,
            conv_kernel=4,
            chunk_size=16,
            time_step_min=1e-12,
            initializer_range=0.1,
        ),
    )


def prepare(model: PreTrainedModel) -> None:
    lengthen_memory(model)
