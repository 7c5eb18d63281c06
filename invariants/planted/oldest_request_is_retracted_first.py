"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import refusals
from hicache.core.actions import NO_REQUEST

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Where pages are short, the oldest request is named to be retracted, not the latest."
KILLS = "answers"

_refuse_room = refusals.refuse_room


def _the_oldest(state: Any, *rest: Any, **more: Any) -> None:
    _refuse_room(state, *rest, **more)
    item = state.out[-1]
    if item.preempt != NO_REQUEST:
        state.out[-1] = item._replace(preempt=next(iter(state.running)))


def plant(patch: Patch) -> None:
    patch(refusals, "refuse_room", _the_oldest)
