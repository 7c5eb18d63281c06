"""Planted in `checkpoints.limit_states`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints
from invariants.reasons import Reason

from ._thinning import in_use, limit_states
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A state above the limit stays if its node has a child."
KILLS = "path-states"
COMPONENTS = ("full", "mamba")
EXCUSES = (Reason.STATE_AT_FORK,)


def _stays(node: Any, index: int) -> bool:
    return in_use(node, index) or bool(node.children)


def _limit(state: Any, path: list[Any]) -> None:
    limit_states(state, path, _stays)


def plant(patch: Patch) -> None:
    patch(checkpoints, "limit_states", _limit)
