"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree
from hicache.core.storage import stores

from .base import Patch

ROWS = ("H6",)
TITLE = "A state is stored under the digest of the first page of its node."
KILLS = "key-inj"

_piece = stores._piece


def _first_digest(state: Any, node: Any, leg: Any) -> Any:
    piece = _piece(state, node, leg)
    if state.components[leg.component].positional:
        return piece
    return piece._replace(digests=tree.digests_of(state, node)[:1])


def plant(patch: Patch) -> None:
    patch(stores, "_piece", _first_digest)
