"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import queue

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "What was stored before storage was attached is still believed to be there."
KILLS = "stored"
FAULTS = ("storage replaced",)

_forget_storage = queue.forget_storage


def _keep_beliefs(state: Any) -> None:
    before = state.beliefs_since
    _forget_storage(state)
    state.beliefs_since = max(1, before)


def plant(patch: Patch) -> None:
    patch(queue, "forget_storage", _keep_beliefs)
