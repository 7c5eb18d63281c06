"""Planted in `core._flush`: it first frees the pages of open backups."""

from __future__ import annotations

from typing import Any

from hicache.core import core
from hicache.core.types import NO_PAGES, Tier
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("C14",)
TITLE = "A flush frees the pages of copies that are in flight."
KILLS = "pool-sum"
FAULTS = ("flush during the copy",)
EXCUSES = (Reason.FLUSHED,)

_flush = core._flush


def _forget_copies(state: Any, event: Any) -> None:
    for flight in state.flights.values():
        for leg in flight.legs if flight.kind == "backup" else ():
            state.pools[Tier.DEVICE][leg.component].repay(leg.source)
            state.pools[Tier.HOST][leg.component].give_back(leg.target)
            leg.source = leg.target = NO_PAGES
    _flush(state, event)


def plant(patch: Patch) -> None:
    patch(core, "_flush", _forget_copies)
