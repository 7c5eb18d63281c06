"""Multi-head and grouped-query attention: keys and values of every layer, divided by rank."""

from __future__ import annotations

from typing import Unpack

from ._family import Dense, heads_of, model
from ._matrix import attention, mlp
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
    hidden = figures["hidden_size"]
    return model(
        name,
        "mha",
        source,
        layers,
        heads_of(head_elements),
        (rows(layers, kv_heads, head_elements, dtype),),
        (
            *attention(layers, hidden, figures["attention_heads"], kv_heads, head_elements),
            *mlp(layers, hidden, figures.get("inner", 0)),
        ),
        active_parameters=figures["parameters"],
        **figures,
    )


def rows(layers: int, kv_heads: int, head_elements: int, dtype: str = "bf16") -> PoolDescription:
    """The pool `kv` of a model in which every layer attends to all tokens."""
    return PoolDescription(
        name="kv",
        component="full",
        kind="kv",
        layers=tuple(range(layers)),
        parts=("k", "v"),
        heads=kv_heads,
        head_elements=head_elements,
        dtype=dtype,
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
    describe(
        "qwen3-8b",
        "huggingface.co/Qwen/Qwen3-8B config.json; parameters: every matrix and norm that it "
        "implies, published as 8.2 G",
        layers=36,
        hidden_size=4096,
        vocabulary=151_936,
        attention_heads=32,
        kv_heads=8,
        head_elements=128,
        inner=12_288,
        parameters=8_190_735_360,
    ),
    describe(
        "llama-2-7b",
        "huggingface.co/meta-llama/Llama-2-7b-hf config.json; parameters: every matrix and norm "
        "that it implies",
        layers=32,
        hidden_size=4096,
        vocabulary=32_000,
        attention_heads=32,
        kv_heads=32,
        head_elements=128,
        inner=11_008,
        parameters=6_738_415_616,
    ),
    describe(
        "llama-2-70b",
        "huggingface.co/meta-llama/Llama-2-70b-hf config.json; parameters: every matrix and norm "
        "that it implies",
        layers=80,
        hidden_size=8192,
        vocabulary=32_000,
        attention_heads=64,
        kv_heads=8,
        head_elements=128,
        inner=28_672,
        parameters=68_976_648_192,
    ),
    describe(
        "mistral-7b",
        # version 0.3; the first version has a window of 4,096 tokens in every layer
        "huggingface.co/mistralai/Mistral-7B-v0.3 config.json; parameters: every matrix and norm "
        "that it implies",
        layers=32,
        hidden_size=4096,
        vocabulary=32_768,
        attention_heads=32,
        kv_heads=8,
        head_elements=128,
        inner=14_336,
        parameters=7_248_023_552,
    ),
    describe(
        "mistral-nemo-12b",
        # head_dim 128 is not hidden size / heads
        "huggingface.co/mistralai/Mistral-Nemo-Instruct-2407 config.json; parameters: every matrix "
        "and norm that it implies",
        layers=40,
        hidden_size=5120,
        vocabulary=131_072,
        attention_heads=32,
        kv_heads=8,
        head_elements=128,
        inner=14_336,
        parameters=12_247_782_400,
    ),
    describe(
        "qwen2.5-7b",
        "huggingface.co/Qwen/Qwen2.5-7B-Instruct config.json; parameters: every matrix, norm and "
        "bias that it implies, published as 7.61 G",
        layers=28,
        hidden_size=3584,
        vocabulary=152_064,
        attention_heads=28,
        kv_heads=4,
        head_elements=128,
        inner=18_944,
        parameters=7_615_616_512,
    ),
    describe(
        "yi-34b",
        "huggingface.co/01-ai/Yi-34B config.json; parameters: every matrix and norm that it "
        "implies, published as 34 G",
        layers=60,
        hidden_size=7168,
        vocabulary=64_000,
        attention_heads=56,
        kv_heads=8,
        head_elements=128,
        inner=20_480,
        parameters=34_388_917_248,
    ),
)
