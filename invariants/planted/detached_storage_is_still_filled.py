"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS = ("C14",)
TITLE = "Copies are stored although storage was detached."
KILLS = "answers"

_backup_done = core._backup_done


def _all_the_same(state: Any, event: Any) -> None:
    attached, state.attached = state.attached, True
    _backup_done(state, event)
    state.attached = attached


def plant(patch: Patch) -> None:
    patch(core, "_backup_done", _all_the_same)
