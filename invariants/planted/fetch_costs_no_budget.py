"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS = ("H5",)
TITLE = "The tokens of a prefetch are given back to the budget when its lookup has ended."
KILLS = "pref-acc"

_begin_fetch = prefetch._begin_fetch


def _for_nothing(state: Any, lookup: Any) -> Any:
    fetch, reason = _begin_fetch(state, lookup)
    if fetch is not None:
        fetch.budget_tokens = 0
    return fetch, reason


def plant(patch: Patch) -> None:
    patch(prefetch, "_begin_fetch", _for_nothing)
