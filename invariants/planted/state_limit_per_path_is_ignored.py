"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A path keeps more states than the setting allows."
KILLS = "path-states"


def _keep_all(state: Any, path: list[Any]) -> None:
    return


def plant(patch: Patch) -> None:
    patch(checkpoints, "limit_states", _keep_all)
