"""Planted in `checkpoints.limit_states`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints
from invariants.reasons import Reason

from ._thinning import limit_states
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Of too many states on a path, the deepest are freed first."
KILLS = "path-states"
COMPONENTS = ("full", "mamba")
EXCUSES = (Reason.THINNED,)


def _limit(state: Any, path: list[Any]) -> None:
    limit_states(state, path, deepest_first=True)


def plant(patch: Patch) -> None:
    patch(checkpoints, "limit_states", _limit)
