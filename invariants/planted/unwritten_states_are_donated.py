"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("M7",)
TITLE = "A slot of the buffer that was taken behind a boundary is donated for that boundary."
KILLS = ""

_note_decoded = checkpoints.note_decoded


def _since_ever(state: Any, request: Any, length: int) -> None:
    request.since = 0
    _note_decoded(state, request, length)


def plant(patch: Patch) -> None:
    patch(checkpoints, "note_decoded", _since_ever)
