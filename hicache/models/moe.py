"""Routed experts behind full attention: the rows are those of multi-head attention."""

from __future__ import annotations

from typing import Unpack

from ._family import Figures, heads_of, model
from ._matrix import attention, experts
from .base import ModelDescription
from .mha import rows


def describe(
    name: str,
    source: str,
    *,
    layers: int,
    kv_heads: int,
    head_elements: int,
    dtype: str = "bf16",
    **figures: Unpack[Figures],
) -> ModelDescription:
    """A model with experts in every layer, whose only pool is `kv`: K and V per layer."""
    hidden, routed = figures["hidden_size"], figures["experts"]
    return model(
        name,
        "moe",
        source,
        layers,
        heads_of(head_elements),
        (rows(layers, kv_heads, head_elements, dtype),),
        (
            *attention(layers, hidden, figures["attention_heads"], kv_heads, head_elements),
            *experts(layers, hidden, figures.get("inner", 0), routed),
        ),
        **figures,
    )


MODELS = (
    describe(
        "qwen3-235b-a22b",
        "huggingface.co/Qwen/Qwen3-235B-A22B config.json; parameters: every matrix and norm that "
        "it implies, published as 235 G and 22 G",
        layers=94,
        hidden_size=4096,
        vocabulary=151_936,
        attention_heads=64,
        kv_heads=4,
        head_elements=128,
        inner=1536,
        parameters=235_093_634_560,
        active_parameters=22_190_763_520,
        experts=128,
        experts_per_token=8,
    ),
)
