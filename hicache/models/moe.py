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
    shared: int = 0,
    **figures: Unpack[Figures],
) -> ModelDescription:
    """A model with experts in every layer, whose only pool is `kv`: K and V per layer. shared:
    width of the expert that all tokens use."""
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
            *experts(layers, hidden, figures.get("inner", 0), routed, shared=shared),
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
    describe(
        "llama-4-scout",
        # three layers of four attend within chunks of 8,192 tokens; longer prompts are not modelled
        "huggingface.co/meta-llama/Llama-4-Scout-17B-16E-Instruct config.json, the text model; "
        "parameters: every matrix and norm that it implies, published as 109 G (with the image "
        "encoder) and 17 G",
        layers=48,
        hidden_size=5120,
        vocabulary=202_048,
        attention_heads=40,
        kv_heads=8,
        head_elements=128,
        inner=8192,
        shared=8192,
        parameters=107_769_861_120,
        active_parameters=17_172_894_720,
        experts=16,
        experts_per_token=1,
    ),
)
