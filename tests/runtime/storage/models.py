"""A small hybrid with every kind of pool that storage treats in its own way."""

from __future__ import annotations

from dataclasses import replace

from hicache.models import ModelDescription
from hicache.models.base import PoolDescription
from hicache.storage.keys import Context
from tests.tiny import tiny

PAGE = 4
LAYERS = 3
WINDOW = 6  # tokens, so two pages
FULL = tiny(LAYERS)


def hybrid() -> ModelDescription:
    """Full attention with an indexer, which all ranks have, and a pool without bytes; a window;
    states."""
    [kv] = tiny(LAYERS).pools
    state = {"kind": "state", "parts": ("state",), "page_rows": 1, "window": 1}
    pools = (
        replace(kv, name="full", component="full", layers=(0, 2)),
        PoolDescription("indexer", "full", "indexer", (0, 2), ("key",), 1, 5, anchor="full"),
        PoolDescription("ghost", "full", "logical", (), (), 1, 0, anchor="full"),
        replace(kv, name="swa", component="swa", layers=(1,), window=WINDOW),
        replace(kv, name="mamba", component="mamba", layers=(1,), **state),  # type: ignore[arg-type]
    )
    return replace(tiny(LAYERS), name="small hybrid", pools=pools)


def context_of(model: ModelDescription) -> Context:
    return Context(model.name, "", PAGE, "tokens", model.pools)
