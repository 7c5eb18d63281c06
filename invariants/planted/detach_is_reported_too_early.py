"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import StorageDetached
from hicache.core.storage import flights

from .base import Patch

ROWS = ("C14",)
TITLE = "Storage is reported as detached while actions for it are in flight."
KILLS = "answers"
FAULTS = ("storage detached",)


def _at_once(state: Any) -> None:
    if not state.attached:
        state.out.append(StorageDetached())


def plant(patch: Patch) -> None:
    patch(flights, "report_detached", _at_once)
