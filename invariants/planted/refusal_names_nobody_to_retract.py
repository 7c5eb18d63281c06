"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import refusals
from hicache.core.actions import NO_REQUEST

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A refusal of a running request names nobody to retract, so all requests wait for ever."
KILLS = ""

_refuse = refusals.refuse


def _name_nobody(
    state: Any,
    request: int,
    reason: Any,
    needed: int,
    available: int,
    preempt: int = NO_REQUEST,
    component: int = 0,
) -> None:
    _refuse(state, request, reason, needed, available, NO_REQUEST, component)


def plant(patch: Patch) -> None:
    patch(refusals, "refuse", _name_nobody)
