"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import checkpoints

from .base import Patch

ROWS: tuple[str, ...] = ("M6",)
TITLE = "States written by a step ahead of the committed tokens are used."
KILLS = "lru"

_note_decoded = checkpoints.note_decoded


def _trust_both(state: Any, request: Any, length: int) -> None:
    before = [list(depths) for depths in request.checkpoint_tokens]
    _note_decoded(state, request, length)
    for index, component in enumerate(state.components):
        if component.positional or request.computed_tokens < request.length:
            continue
        interval = component.interval
        depth = length // interval * interval - interval
        track = depth // interval % 2
        known = depth > request.length and request.tables[index][1 + track] >= 0
        request.checkpoint_tokens[index][track] = depth if known else before[index][track]


def plant(patch: Patch) -> None:
    patch(checkpoints, "note_decoded", _trust_both)
