"""Planted in `checkpoints.limit_states`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints
from invariants.reasons import Reason

from ._thinning import limit_states
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A path with too many states loses one state too many."
KILLS = ""
COMPONENTS = ("full", "mamba")
EXCUSES = (Reason.FREED_SLOT,)


def _limit(state: Any, path: list[Any]) -> None:
    limit_states(state, path, more=1)


def plant(patch: Patch) -> None:
    patch(checkpoints, "limit_states", _limit)
