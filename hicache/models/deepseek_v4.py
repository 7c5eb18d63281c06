"""DeepSeek V4: rows of compressed tokens, a short window, and the states of the compressors.

A logical pool without bytes has the page numbers. A layer compresses 4 or 128 tokens to one row,
and layers that compress 4 tokens have an indexer over these rows. All these pools follow the page
numbers of the logical pool. Each layer also keeps the last tokens uncompressed in the pool `swa`.
The states of the compressors, which are unfinished sums, follow the pages of `swa`, with a ring of
rows per page. The byte sizes are those of SGLang (deepseek_v4_memory_pool.py,
deepseek_v4_compress_state.py), without the padding of its pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Unpack

from ._family import Figures, heads_of, model
from ._matrix import Matrix, experts
from .base import ModelDescription, PoolDescription

_FEW, _MANY = 4, 128
_OUT = 1024  # o_lora_rank, of each group of heads
_INDEX_HEADS = 64
_STREAMS = 4  # hc_mult: the residual streams that two mixings in a layer read
# Rows of state per page: two overlapping groups of 4, or one group of 128, without draft tokens.
_RINGS = {_FEW: 2 * _FEW, _MANY: _MANY}


def describe(
    name: str,
    source: str,
    *,
    ratios: Sequence[int],
    head_elements: int,
    rope_elements: int,
    index_elements: int,
    window: int,
    quantized: bool = True,
    query_elements: int = 0,
    groups: int = 1,
    selected_tokens: int = 0,
    **figures: Unpack[Figures],
) -> ModelDescription:
    """ratios: for each layer, the tokens that share a row, or 0 for a layer with a window only.

    quantized: rows and index keys are quantized, as in serving; otherwise they are bf16, as in many
    published figures. query_elements: of the compressed query. groups: of heads, whose outputs are
    compressed apart. selected_tokens: rows of compressed tokens that a query reads at most.
    """
    row = _row(head_elements, rope_elements) if quantized else _plain(head_elements)
    key = _key(index_elements) if quantized else _plain(index_elements)
    key = replace(key, name="c4_indexer", kind="indexer", parts=("key",))
    layers = {
        ratio: tuple(n for n, of in enumerate(ratios) if of == ratio) for ratio in (_FEW, _MANY)
    }
    full = [
        replace(row, name="c4", layers=layers[_FEW], compression=_FEW),
        replace(key, layers=layers[_FEW], compression=_FEW),
        replace(row, name="c128", layers=layers[_MANY], compression=_MANY),
    ]
    return model(
        name,
        "deepseek-v4",
        source,
        len(ratios),
        heads_of(head_elements),
        (
            PoolDescription("logical", "full", "logical", (), (), 1, 0),
            *(replace(pool, component="full", anchor="logical") for pool in full),
            replace(row, layers=tuple(range(len(ratios))), window=window),
            _state("c4_state", layers[_FEW], _FEW, head_elements),
            _state("c4_indexer_state", layers[_FEW], _FEW, index_elements),
            _state("c128_state", layers[_MANY], _MANY, head_elements),
        ),
        _matrices(
            layers, len(ratios), head_elements, index_elements, query_elements, groups, **figures
        )
        if figures.get("inner")
        else (),
        selected_tokens,
        **figures,
    )


def _matrices(
    compressed: Mapping[int, tuple[int, ...]],
    layers: int,
    head: int,
    index: int,
    query: int,
    groups: int,
    **figures: Unpack[Figures],
) -> tuple[Matrix, ...]:
    """compressed: the layers that compress so many tokens to one row. A compressor has two products
    (value and score), and twice as wide if its groups of tokens overlap."""
    hidden, inner, heads = figures["hidden_size"], figures["inner"], figures["attention_heads"]
    few, many = len(compressed[_FEW]), len(compressed[_MANY])

    def whole(name: str, inputs: int, outputs: int, layers: int, count: int = 2) -> Matrix:
        return Matrix(name, inputs, outputs, layers, "whole", "other", count=count)

    return (
        Matrix("qkv_a", hidden, query + head, layers, "whole", "attention"),
        Matrix("q_b", query, heads * head, layers, "outputs", "attention"),
        Matrix("o_a", heads * head // groups, _OUT, layers, "outputs", "attention", count=groups),
        Matrix("o_b", groups * _OUT, hidden, layers, "inputs", "attention"),
        whole("compressor_4", hidden, 2 * head, few),
        whole("compressor_128", hidden, head, many),
        Matrix("index_q", query, _INDEX_HEADS * index, few, "whole", "attention"),
        whole("index_compressor", hidden, 2 * index, few),
        whole("index_weights", hidden, _INDEX_HEADS, few, 1),
        whole("mixing", _STREAMS * hidden, _STREAMS * (_STREAMS + 2), layers),
        *experts(layers, hidden, inner, figures["experts"], shared=inner),
    )


def _plain(elements: int) -> PoolDescription:
    """The pool of the window, the base of the other pools: one bf16 row, the same on every rank."""
    return PoolDescription("swa", "swa", "latent", (0,), ("latent",), 1, elements)


def _row(elements: int, rope: int) -> PoolDescription:
    """A row in fp8 with a one-byte scale per 64 elements, then the rotary key in bf16 and one byte
    of padding."""
    plain = _plain(elements - rope)
    return replace(plain, dtype="fp8", scale_group=64, scale_bytes=1, tail_bytes=2 * rope + 1)


def _key(elements: int) -> PoolDescription:
    """An index key in fp8 with an fp32 scale per 128 elements."""
    return replace(_plain(elements), dtype="fp8", scale_group=128, scale_bytes=4)


def _state(name: str, layers: tuple[int, ...], ratio: int, elements: int) -> PoolDescription:
    """The state of a compressor: a value and a score of each token, for each group of `ratio`
    tokens that the token belongs to."""
    ring = _RINGS[ratio]
    return PoolDescription(
        name=name,
        component="swa",
        kind="state",
        layers=layers,
        parts=("state",),
        heads=1,
        head_elements=2 * (ring // ratio) * elements,
        dtype="fp32",
        anchor="swa",
        page_rows=ring,
        window=ring,
    )


MODELS = (
    describe(
        "deepseek-v4-pro",
        # ratios: compress_ratios but the draft module's
        "huggingface.co/deepseek-ai/DeepSeek-V4-Pro config.json; parameters: the weights its "
        "checkpoint lists but the draft module's, published as 1.6 T and 49 G; types of the "
        "weights: its model card (experts in fp4), scales per 32 not confirmed; rows and page "
        "size: SGLang's",
        ratios=(128, 128, *(4, 128) * 29, 4),
        hidden_size=7168,
        vocabulary=129_280,
        attention_heads=128,
        head_elements=512,
        rope_elements=64,
        index_elements=128,
        window=128,
        query_elements=1536,
        groups=16,
        selected_tokens=1024,
        inner=3072,
        parameters=1_572_997_201_763,
        active_parameters=49_779_081_059,
        experts=384,
        experts_per_token=6,
        weight_dtype="fp8-block",
        expert_dtype="mxfp4",
        page_size=256,
    ),
    describe(
        "deepseek-v4-flash",
        "huggingface.co/deepseek-ai/DeepSeek-V4-Flash config.json; parameters: the weights its "
        "checkpoint lists but the draft module's, published as 284 G and 13 G; types of the "
        "weights: its model card (experts in fp4), scales per 32 not confirmed; rows and page "
        "size: SGLang's",
        ratios=(0, 0, *(4, 128) * 20, 4),
        hidden_size=4096,
        vocabulary=129_280,
        attention_heads=64,
        head_elements=512,
        rope_elements=64,
        index_elements=128,
        window=128,
        query_elements=1024,
        groups=8,
        selected_tokens=512,
        inner=2048,
        parameters=284_332_240_471,
        active_parameters=13_799_632_471,
        experts=256,
        experts_per_token=6,
        weight_dtype="fp8-block",
        expert_dtype="mxfp4",
        page_size=256,
    ),
)
