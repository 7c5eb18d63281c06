"""Sparse attention over latents: the latent rows of MLA, with the keys of an indexer as a sidecar.

The indexer scores every earlier token with one small key per layer and selects the tokens that
attention reads (DeepSeek-V3.2-Exp report). A page of latents cannot be used without its index keys.
"""

from __future__ import annotations

from dataclasses import replace

from . import mla
from ._matrix import Matrix
from .base import ModelDescription, PoolDescription

# An index key is fp8 with one fp32 scale per 128 elements (SGLang, NSATokenToKVPool).
_SCALE_GROUP, _SCALE_BYTES = 128, 4


def describe(base: ModelDescription, *, index_elements: int) -> ModelDescription:
    """An MLA model with an indexer in every layer. The key is one head, so every rank has it."""
    latent = base.pools[0]
    indexer = PoolDescription(
        name="indexer",
        component=latent.component,
        kind="indexer",
        layers=latent.layers,
        parts=("key",),
        heads=1,
        head_elements=index_elements,
        dtype="fp8",
        anchor=latent.name,
        scale_group=_SCALE_GROUP,
        scale_bytes=_SCALE_BYTES,
    )
    return replace(base, family="dsa", pools=(*base.pools, indexer))


def _indexer(layers: int, hidden: int, query: int, heads: int, elements: int) -> tuple[Matrix, ...]:
    """Queries of the indexer from the compressed query, its key, and a weight for each of its
    heads. Every rank has them whole."""
    return (
        Matrix("index_q", query, heads * elements, layers, "whole", "attention"),
        Matrix("index_k", hidden, elements, layers, "whole", "attention"),
        Matrix("index_weights", hidden, heads, layers, "whole", "other"),
    )


MODELS = (
    describe(
        mla.describe(
            "deepseek-v3.2",
            "huggingface.co/deepseek-ai/DeepSeek-V3.2 config.json; parameters: DeepSeek-V3's and "
            "every matrix and norm of the indexer; index keys: SGLang's",
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
            indexer=_indexer(61, 7168, 1536, 64, 128),
            selected_tokens=2048,
            parameters=671_877_944_064,
            active_parameters=38_403_822_336,
            experts=256,
            experts_per_token=8,
            weight_dtype="fp8-block",
        ),
        index_elements=128,
    ),
)
