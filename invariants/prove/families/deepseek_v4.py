"""DeepSeek V4: a window in each layer, and beside it compressed entries."""

from __future__ import annotations

import torch
from transformers import DeepseekV4Config, PretrainedConfig, PreTrainedModel

from .base import VOCABULARY

SUMMARY = "windows, compressed entries and an indexer over them"


def configurations() -> tuple[PretrainedConfig, ...]:
    return (
        DeepseekV4Config(
            vocab_size=VOCABULARY,
            hidden_size=64,
            moe_intermediate_size=32,
            num_hidden_layers=3,
            num_attention_heads=4,
            head_dim=16,
            q_lora_rank=32,
            n_shared_experts=1,
            n_routed_experts=4,
            num_experts_per_tok=2,
            compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
            layer_types=[
                "compressed_sparse_attention",
                "heavily_compressed_attention",
                "sliding_attention",
            ],
            mlp_layer_types=["hash_moe", "moe", "moe"],
            sliding_window=12,
            hc_mult=2,
            o_groups=2,
            o_lora_rank=16,
            index_n_heads=64,
            index_head_dim=16,
            index_topk=6,
            partial_rotary_factor=0.5,
            initializer_range=0.1,
        ),
    )


def prepare(model: PreTrainedModel) -> None:
    """What the library leaves at zero: which experts a token has, the weights of the places in a
    group, and the sinks."""
    for name, buffer in model.named_buffers():
        if name.endswith("tid2eid"):
            experts = model.config.n_routed_experts
            drawn = [torch.randperm(experts)[: buffer.shape[1]] for _ in range(len(buffer))]
            buffer.copy_(torch.stack(drawn))
    for name, parameter in model.named_parameters():
        if name.endswith(("position_bias", "sinks")):
            parameter.normal_(std=0.5)
