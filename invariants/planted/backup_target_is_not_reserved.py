"""Planted in `backup._add_legs`: the target is given back as soon as the copy is queued."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("C10",)
TITLE = "The host pages that a backup writes can be given to another backup meanwhile."
KILLS = "own-h"

_add_legs = backup._add_legs


def _give_back(state: Any, flight: Any, index: int, *rest: Any) -> None:
    _add_legs(state, flight, index, *rest)
    for leg in flight.legs:
        if leg.component == index:
            state.pools[Tier.HOST][index].give_back(leg.target)


def plant(patch: Patch) -> None:
    patch(backup, "_add_legs", _give_back)
