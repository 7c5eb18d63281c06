"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("K2",)
TITLE = "A path keeps every state that was ever left on it."
KILLS = ""


def _keep_all(state: Any, path: list[Any]) -> None:
    del state, path


def plant(patch: Patch) -> None:
    patch(checkpoints, "thin", _keep_all)
