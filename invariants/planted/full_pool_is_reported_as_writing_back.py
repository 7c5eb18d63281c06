"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import refusals
from hicache.core.actions import NO_REQUEST
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A refusal says that pages are being written back, although none are."
KILLS = "live-evict"


def _always_writing_back(
    state: Any, request: int, component: int, needed: int, preempt: bool = False
) -> None:
    room = state.pools[Tier.DEVICE][component].available
    refusals.refuse(state, request, "writing_back", needed, room, NO_REQUEST, component)


def plant(patch: Patch) -> None:
    patch(refusals, "refuse_room", _always_writing_back)
