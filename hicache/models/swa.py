"""Sliding-window hybrids: keys and values of full layers, and of window layers in their own pages.

A window layer attends only to the last `window` tokens. So its pages before the window can be freed
while those of the full layers stay, and it is a component of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from ._family import Figures, heads_of, model
from ._matrix import attention, experts
from .base import ModelDescription, PoolDescription


def describe(
    name: str,
    source: str,
    *,
    layers: int,
    full_layers: Iterable[int],
    window: int,
    kv_heads: int,
    head_elements: int,
    dtype: str = "bf16",
    **figures: Unpack[Figures],
) -> ModelDescription:
    """A model with the pool `kv` for the full layers and `swa` for all others. Both have the same
    heads. window: in tokens."""
    full = tuple(full_layers)

    def pool(name: str, component: str, layers: tuple[int, ...], window: int) -> PoolDescription:
        return PoolDescription(
            name=name,
            component=component,
            kind="kv",
            layers=layers,
            parts=("k", "v"),
            heads=kv_heads,
            head_elements=head_elements,
            dtype=dtype,
            window=window,
        )

    hidden, inner = figures["hidden_size"], figures.get("inner", 0)
    return model(
        name,
        "swa",
        source,
        layers,
        heads_of(head_elements),
        (
            pool("kv", "full", full, 0),
            pool("swa", "swa", tuple(n for n in range(layers) if n not in full), window),
        ),
        (
            *attention(layers, hidden, figures["attention_heads"], kv_heads, head_elements),
            *experts(layers, hidden, inner, figures.get("experts", 0)),
        ),
        **figures,
    )


GPT_OSS_120B = describe(
    "gpt-oss-120b",
    # layer_types alternate and begin with a sliding layer; sliding_window is 128
    "huggingface.co/openai/gpt-oss-120b config.json; parameters: every matrix and bias that it "
    "implies, published as 116.8 G and 5.1 G without the embedding; weights: published as "
    "60.8 GiB, matrices of experts in mxfp4 and all else in bf16",
    layers=36,
    full_layers=range(1, 36, 2),
    window=128,
    hidden_size=2880,
    vocabulary=201_088,
    attention_heads=64,
    kv_heads=8,
    head_elements=64,
    inner=2880,
    parameters=116_829_156_672,
    active_parameters=5_711_982_912,
    experts=128,
    experts_per_token=4,
    weight_dtype="bf16",
    expert_dtype="mxfp4",
)

MODELS = (
    GPT_OSS_120B,
    describe(
        "gemma-3-27b",
        # sliding_window_pattern 6: every sixth layer is full; the embedding is the output head
        "huggingface.co/google/gemma-3-27b-it config.json (text_config) and the defaults of "
        "transformers; parameters: every matrix and norm of the language model that they imply",
        layers=62,
        full_layers=range(5, 62, 6),
        window=1024,
        hidden_size=5376,
        vocabulary=262_208,
        attention_heads=32,
        kv_heads=16,
        head_elements=128,
        inner=21_504,
        parameters=27_009_346_304,
        active_parameters=27_009_346_304,
        embeddings=1,
    ),
)
