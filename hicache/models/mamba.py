"""Linear hybrids: keys and values of full layers, and one recurrent state of all linear layers.

The state of a linear layer (Gated DeltaNet) is the last inputs of a convolution and a matrix per
value head. One slot has the states of all linear layers after some token. They are a component of
their own, whose pages are slots.
"""

from __future__ import annotations

from typing import Unpack

from ._family import Figures, heads_of, model
from ._matrix import Matrix, attention, experts
from .base import ModelDescription, PoolDescription

# SGLang's default distance between tracked states (server_args.py, mamba_track_interval).
_INTERVAL = 256


def describe(
    name: str,
    source: str,
    *,
    layers: int,
    full_every: int,
    kv_heads: int,
    head_elements: int,
    key_heads: int,
    value_heads: int,
    key_elements: int,
    value_elements: int,
    conv_width: int,
    dtype: str = "bf16",
    state_dtype: str = "fp32",
    **figures: Unpack[Figures],
) -> ModelDescription:
    """A model in which every `full_every`th layer is full and the others are linear.

    The convolution runs over queries, keys and values and keeps its last `conv_width` - 1 inputs.
    Each rank has a share of the key heads and the value heads that belong to them. A shared expert
    is as wide as a routed one.
    """
    full = tuple(range(full_every - 1, layers, full_every))
    linear = tuple(n for n in range(layers) if n not in full)
    channels = 2 * key_elements + value_heads // key_heads * value_elements
    kv = PoolDescription("kv", "full", "kv", full, ("k", "v"), kv_heads, head_elements, dtype)

    hidden, inner = figures["hidden_size"], figures.get("inner", 0)
    routed = figures.get("experts", 0)
    values = value_heads * value_elements
    wide = 2 * key_heads * key_elements + 2 * values
    return model(
        name,
        "mamba",
        source,
        layers,
        heads_of(head_elements),
        (
            kv,
            _state("ssm", linear, value_heads, key_elements * value_elements, state_dtype),
            _state("conv", linear, key_heads, (conv_width - 1) * channels, dtype),
        ),
        (
            *attention(
                len(full), hidden, figures["attention_heads"], kv_heads, head_elements, gated=True
            ),
            Matrix("linear_qkvz", hidden, wide, len(linear), "outputs", "attention"),
            Matrix("linear_ba", hidden, 2 * value_heads, len(linear), "outputs", "other"),
            Matrix("linear_o", values, hidden, len(linear), "inputs", "attention"),
            *experts(layers, hidden, inner, routed, shared=inner),
            *([Matrix("shared_weight", hidden, 1, layers, "whole", "router")] if routed else []),
        ),
        **figures,
    )


def _state(
    name: str, layers: tuple[int, ...], heads: int, elements: int, dtype: str
) -> PoolDescription:
    """A pool whose slots have a state of all linear layers."""
    return PoolDescription(
        name=name,
        component="mamba",
        kind="state",
        layers=layers,
        parts=("state",),
        heads=heads,
        head_elements=elements,
        dtype=dtype,
        page_rows=1,
        window=1,
        interval=_INTERVAL,
    )


MODELS = (
    describe(
        "qwen3-next-80b-a3b",
        "huggingface.co/Qwen/Qwen3-Next-80B-A3B-Instruct config.json; parameters: every matrix and "
        "norm that it implies but the draft module's, published as 80 G and 3 G; dtype and "
        "interval of states: SGLang's defaults",
        layers=48,
        full_every=4,
        hidden_size=2048,
        vocabulary=151_936,
        attention_heads=16,
        kv_heads=2,
        head_elements=256,
        key_heads=16,
        value_heads=32,
        key_elements=128,
        value_elements=128,
        conv_width=4,
        inner=512,
        parameters=79_674_391_296,
        active_parameters=3_874_929_408,
        experts=512,
        experts_per_token=10,
    ),
    describe(
        "qwen3.5-397b-a17b",
        "huggingface.co/Qwen/Qwen3.5-397B-A17B config.json (text_config); parameters: every matrix "
        "and norm that it implies but the draft module's, published as 397 G with the vision "
        "encoder and 17 G; dtype and interval of states: SGLang's defaults",
        layers=60,
        full_every=4,
        hidden_size=4096,
        vocabulary=248_320,
        attention_heads=32,
        kv_heads=2,
        head_elements=256,
        key_heads=16,
        value_heads=64,
        key_elements=128,
        value_elements=128,
        conv_width=4,
        inner=1024,
        parameters=396_346_350_336,
        active_parameters=17_349_040_896,
        experts=512,
        experts_per_token=10,
    ),
)
