"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Aborting a request that no pass works for leaves its path locked."
KILLS = "lock-bal"
FAULTS = ("abort after the reply",)

_abort = admission.abort


def _unheard(state: Any, event: Any) -> None:
    request = state.requests.get(event.request)
    if request is not None and request.admitted and not request.prefill:
        request.receipt = None
    _abort(state, event)


def plant(patch: Patch) -> None:
    patch(admission, "abort", _unheard)
