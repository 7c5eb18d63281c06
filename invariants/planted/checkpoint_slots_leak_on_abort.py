"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ("M4",)
TITLE = "An aborted request frees its working state, but not its two checkpoint slots."
KILLS = "own-d"

_withdraw = admission._withdraw


def _forget_tracks(state: Any, request: Any) -> None:
    for index, component in enumerate(state.components):
        if not component.positional and request.admitted and not request.prefill:
            slots = request.tables[index].copy()
            slots[1:] = -1
            slots.flags.writeable = False
            request.tables[index] = slots
    _withdraw(state, request)


def plant(patch: Patch) -> None:
    patch(admission, "_withdraw", _forget_tracks)
