"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A table has sixteen places: a longer prompt is admitted without its end."
KILLS = "no-oom"
FAULTS = ("device squeezed", "allocation refused", "host squeezed")

PLACES = 16
_plan = placement._plan


def _cut(state: Any, request: Any, path: Any, loads: Any, chunk: int) -> Any:
    plan = _plan(state, request, path, loads, chunk)
    most = plan.loading[0] + max(0, PLACES - plan.pages)
    plan.needed[0] = min(plan.needed[0], most)
    return plan


def plant(patch: Patch) -> None:
    patch(placement, "_plan", _cut)
