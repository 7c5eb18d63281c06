"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import validation

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request that is admitted may be admitted again."
KILLS = ""
FAULTS = ("admitted twice",)

_waiting = validation.waiting


def _any_request(state: Any, request_id: int) -> Any:
    return state.requests.get(request_id) or _waiting(state, request_id)


def plant(patch: Patch) -> None:
    patch(validation, "waiting", _any_request)
