"""Planted in `transfers.begin_load` and `backup._add_legs`: a node remembers one transfer only.

Transfers of different components may be in flight for one node at the same time.
"""

from __future__ import annotations

from typing import Any

from hicache.core import backup, transfers

from .base import Patch

ROWS: tuple[str, ...] = ("B9",)
TITLE = "A transfer of another component makes a node forget the one in flight."
KILLS = ""

_begin_load, _add_legs = transfers.begin_load, backup._add_legs


def _mark(flight: Any) -> None:
    for leg in flight.legs:
        leg.node.legs = tuple(one for one in leg.node.legs if one.flight is flight)


def _load(state: Any, request: Any, flight: Any, loads: Any, targets: Any) -> None:
    _begin_load(state, request, flight, loads, targets)
    _mark(flight)


def _backup(state: Any, flight: Any, *rest: Any) -> None:
    _add_legs(state, flight, *rest)
    _mark(flight)


def plant(patch: Patch) -> None:
    patch(transfers, "begin_load", _load)
    patch(backup, "_add_legs", _backup)
