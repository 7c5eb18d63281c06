"""Multi-head and grouped-query attention: keys and values of every layer, divided by rank."""

from __future__ import annotations

from typing import Unpack

from ._family import Dense, heads_of, model
from ._products import attention, mlp
from .base import ModelDescription, PoolDescription


def describe(
    name: str,
    source: str,
    *,
    layers: int,
    kv_heads: int,
    head_elements: int,
    dtype: str = "bf16",
    **figures: Unpack[Dense],
) -> ModelDescription:
    """A dense model whose only pool is `kv`: K and V per layer."""
    kv = PoolDescription(
        name="kv",
        component="full",
        kind="kv",
        layers=tuple(range(layers)),
        parts=("k", "v"),
        heads=kv_heads,
        head_elements=head_elements,
        dtype=dtype,
    )
    hidden = figures["hidden_size"]
    return model(
        name,
        "mha",
        source,
        layers,
        heads_of(head_elements),
        (kv,),
        (
            *attention(layers, hidden, figures["attention_heads"], kv_heads, head_elements),
            *mlp(layers, hidden, figures.get("inner", 0)),
        ),
        active_parameters=figures["parameters"],
        **figures,
    )


# One token has 2 KiB: quick to copy in measurements on any machine.
TINY = describe(
    "tiny",
    "made up: small enough for any machine",
    layers=4,
    hidden_size=256,
    vocabulary=256,
    attention_heads=4,
    kv_heads=2,
    head_elements=64,
    inner=352,
    parameters=2_000_000,
)

LLAMA_3_1_8B = describe(
    "llama-3.1-8b",
    "huggingface.co/meta-llama/Llama-3.1-8B config.json; parameters: its safetensors metadata",
    layers=32,
    hidden_size=4096,
    vocabulary=128_256,
    attention_heads=32,
    kv_heads=8,
    head_elements=128,
    inner=14_336,
    parameters=8_030_261_248,
)

MODELS = (
    LLAMA_3_1_8B,
    describe(
        "llama-3.1-70b",
        "huggingface.co/meta-llama/Llama-3.1-70B config.json; parameters: its safetensors metadata",
        layers=80,
        hidden_size=8192,
        vocabulary=128_256,
        attention_heads=64,
        kv_heads=8,
        head_elements=128,
        inner=28_672,
        parameters=70_553_706_496,
    ),
    describe(
        "qwen3-32b",
        # head_dim 128 is not hidden size / heads
        "huggingface.co/Qwen/Qwen3-32B config.json; parameters: its safetensors metadata",
        layers=64,
        hidden_size=5120,
        vocabulary=151_936,
        attention_heads=64,
        kv_heads=8,
        head_elements=128,
        inner=25_600,
        parameters=32_762_123_264,
    ),
)
