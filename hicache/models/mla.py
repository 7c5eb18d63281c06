"""Multi-head latent attention: one compressed row per layer, the same on every rank."""

from __future__ import annotations

from typing import Unpack

from ._family import Elements, Figures, model
from ._matrix import Matrix, experts, mlp
from .base import ModelDescription, PoolDescription


def describe(
    name: str,
    source: str,
    *,
    layers: int,
    latent_elements: int,
    rope_elements: int,
    nope_elements: int,
    value_elements: int,
    dtype: str = "bf16",
    query_elements: int = 0,
    dense_layers: int = 0,
    dense_inner: int = 0,
    indexer: tuple[Matrix, ...] = (),
    selected_tokens: int = 0,
    **figures: Unpack[Figures],
) -> ModelDescription:
    """A model whose only pool is `kv`: the latent and the rotary key of each layer, in one row.

    Prefill expands the latent to heads with nope + rope elements for scores and value elements for
    values. Decode absorbs this expansion into the query and attends to the latent itself
    (DeepSeek-V2, arXiv 2405.04434, section 2.1.2), so each head multiplies latent + rope elements
    and sums latent elements. The expansion is the matrix kv_b: prefill multiplies it with every
    latent of the context, decode (in its two halves) with the new token alone.

    query_elements: of the compressed query. dense_layers, dense_inner: the first layers have an MLP
    of this width; the others have routed experts and a shared one, each of width `inner`.
    indexer: further matrices of sparse attention.
    """
    hidden, inner = figures["hidden_size"], figures.get("inner", 0)
    row = latent_elements + rope_elements
    elements = Elements(nope_elements + rope_elements, value_elements, row, latent_elements)
    kv = PoolDescription(
        name="kv",
        component="full",
        kind="latent",
        layers=tuple(range(layers)),
        parts=("latent",),
        heads=1,
        head_elements=row,
        dtype=dtype,
    )
    return model(
        name,
        "mla",
        source,
        layers,
        elements,
        (kv,),
        (
            *_projections(layers, query_elements, latent_elements, elements, figures),
            *indexer,
            *mlp(dense_layers, hidden, dense_inner),
            *experts(layers - dense_layers, hidden, inner, figures["experts"], shared=inner),
        )
        if inner
        else (),
        selected_tokens,
        **figures,
    )


def _projections(
    layers: int, query: int, latent: int, elements: Elements, figures: Figures
) -> tuple[Matrix, ...]:
    """The products of attention. query: elements of the compressed query."""
    hidden, heads = figures["hidden_size"], figures["attention_heads"]
    nope = elements.score - (elements.decode_score - latent)

    def product(name: str, inputs: int, outputs: int, split: str, expands: bool = False) -> Matrix:
        return Matrix(name, inputs, outputs, layers, split, "attention", expands=expands)

    return (
        product("qkv_a", hidden, query + elements.decode_score, "whole"),
        product("q_b", query, heads * elements.score, "outputs"),
        product("kv_b", latent, heads * (nope + elements.value), "outputs", expands=True),
        product("o", heads * elements.value, hidden, "inputs"),
    )


DEEPSEEK_V3 = describe(
    "deepseek-v3",
    "huggingface.co/deepseek-ai/DeepSeek-V3 config.json; parameters: every matrix, norm and gate "
    "bias that it implies but the draft module's, published as 671 G and 37 G (arXiv 2412.19437)",
    layers=61,
    hidden_size=7168,
    vocabulary=129_280,
    attention_heads=128,
    latent_elements=512,
    rope_elements=64,
    nope_elements=128,
    value_elements=128,
    query_elements=1536,
    dense_layers=3,
    dense_inner=18_432,
    inner=2048,
    parameters=671_026_419_200,
    active_parameters=37_552_297_472,
    experts=256,
    experts_per_token=8,
    weight_dtype="fp8-block",  # quantization_config
)

MODELS = (DEEPSEEK_V3,)
