"""Planted in `transfers.begin_load`: the marker of a load is one per node."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers
from hicache.core.errors import CoreBug

from .base import Patch

ROWS: tuple[str, ...] = ("B9",)
TITLE = "A second load of a node that reads another component of it is taken for a defect."
KILLS = ""

_begin_load = transfers.begin_load


def _pinned(state: Any, request: Any, flight: Any, loads: Any, targets: Any) -> None:
    for node in (node for nodes in loads for node in nodes):
        if any(leg.flight.kind == "load" and leg.flight is not flight for leg in node.legs):
            raise CoreBug(f"{node} is pinned by another load")
    _begin_load(state, request, flight, loads, targets)


def plant(patch: Patch) -> None:
    patch(transfers, "begin_load", _pinned)
