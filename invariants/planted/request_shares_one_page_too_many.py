"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import placement

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request shares one page more than its path has."
KILLS = "pool-sum"

_admit = placement._admit


def _one_more(state: Any, request: Any, plan: Any) -> None:
    _admit(state, request, plan)
    if request.shared_pages < request.key.pages:
        request.shared_pages += 1


def plant(patch: Patch) -> None:
    patch(placement, "_admit", _one_more)
