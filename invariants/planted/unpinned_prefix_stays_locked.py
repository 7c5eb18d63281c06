"""Planted in `pinning.want_unpin`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Unpinned
from hicache.core.wants import pinning

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A pin that is given up keeps its locks."
KILLS = "lock-bal"
WANTED = True


_want_unpin = pinning.want_unpin


def _keep(state: Any, event: Any) -> None:
    if event.pin not in state.pins:
        _want_unpin(state, event)
    pin = state.pins.pop(event.pin)
    state.out.append(Unpinned(pin.id, pin.held_pages))


def plant(patch: Patch) -> None:
    patch(pinning, "want_unpin", _keep)
