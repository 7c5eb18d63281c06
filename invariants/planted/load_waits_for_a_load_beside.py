"""Planted in `placement._arriving`: it also names a load that fills a node beside those wanted."""

from __future__ import annotations

from typing import Any

from hicache.core import placement
from hicache.core.radix.node import FlightKind

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request that needs a load waits while a load fills a node beside its own prefix."
KILLS = "progress"


def _any(loads: list[list[Any]]) -> int:
    legs = [leg for nodes in loads for node in nodes for leg in _near(node).legs]
    return next((leg.flight.id for leg in legs if leg.flight.kind is FlightKind.LOAD), 0)


def _near(node: Any) -> Any:
    """The node, or one beside it that a load fills."""
    beside = node.parent.children.values() if node.parent is not None else ()
    return next((one for one in beside if one.legs), node)


def plant(patch: Patch) -> None:
    patch(placement, "_arriving", _any)
