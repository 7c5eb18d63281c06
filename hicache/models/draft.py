"""Draft modules (EAGLE, MTP): layers after the model's own, whose KV follows the model's pages.

`with_draft` adds a draft module to any model. The draft KV must be copied with its page. Otherwise
the draft module would read KV that another request left in that page.
"""

from __future__ import annotations

from dataclasses import replace

from . import mha, mla
from .base import ModelDescription, PoolDescription


def with_draft(
    model: ModelDescription,
    name: str,
    source: str,
    *,
    like: PoolDescription,
    anchor: str,
    layers: int,
) -> ModelDescription:
    """The model with a draft module of `layers` layers, numbered after its own.

    like: a pool with the same rows as the draft's KV. anchor: the model's pool whose page numbers
    the draft follows. The parameters stay those of the model: the draft's computation is not
    counted.
    """
    own = next((pool for pool in model.pools if pool.name == anchor), like)
    draft = replace(
        like,
        name="draft",
        component=own.component,
        anchor=anchor,
        layers=tuple(range(model.layers, model.layers + layers)),
    )
    return replace(
        model,
        name=name,
        family="draft",
        source=f"{model.source}; {source}",
        layers=model.layers + layers,
        pools=(*model.pools, draft),
    )


_LLAMA, _V3 = mha.LLAMA_3_1_8B, mla.DEEPSEEK_V3

MODELS = (
    with_draft(
        _LLAMA,
        "llama-3.1-8b-eagle3",
        # one layer of the model's own KV geometry: 8 KV heads of 128
        "SpecForge's configs/llama3-8B-eagle3.json",
        like=_LLAMA.pools[0],
        anchor="kv",
        layers=1,
    ),
    with_draft(
        _V3,
        "deepseek-v3-mtp",
        # num_nextn_predict_layers 1: a layer of the model's own geometry, layer 61
        "arXiv 2412.19437, section 2.2",
        like=_V3.pools[0],
        anchor="kv",
        layers=1,
    ),
)
