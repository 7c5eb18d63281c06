"""Planted in `transfers.begin_load`: the targets replace the host pages of the nodes."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers
from hicache.core.radix.node import set_pages
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("C11",)
TITLE = "A load writes its own page numbers into the nodes whose host copies it reads."
KILLS = "lock-bal"

_begin_load = transfers.begin_load


def _write_back(state: Any, request: Any, flight: Any, loads: Any, targets: Any) -> None:
    _begin_load(state, request, flight, loads, targets)
    for leg in flight.legs:
        set_pages(leg.node, Tier.HOST, leg.component, leg.target)


def plant(patch: Patch) -> None:
    patch(transfers, "begin_load", _write_back)
