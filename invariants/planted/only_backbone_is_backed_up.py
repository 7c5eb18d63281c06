"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ("G6",)
TITLE = "Only full attention is copied to host."
KILLS = "durable"

_missing_on_host = backup.missing_on_host


def _backbone_only(state: Any, node: Any) -> list[int]:
    return [index for index in _missing_on_host(state, node) if not index]


def plant(patch: Patch) -> None:
    patch(backup, "missing_on_host", _backbone_only)
