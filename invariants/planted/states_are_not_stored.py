"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import stores
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Only full attention is stored."
KILLS = "stored"
COMPONENTS = ("full", "mamba")
EXCUSES = (Reason.NOT_REQUIRED,)

_wanted = stores._wanted


def _backbone(state: Any, node: Any) -> list[int]:
    return [index for index in _wanted(state, node) if not index]


def plant(patch: Patch) -> None:
    patch(stores, "_wanted", _backbone)
