"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission, refusals

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Aborting a request that waits for a write-back makes the write-back count as done."
KILLS = ""
FAULTS = ("abort while writing back",)

_abort, _refuse = admission.abort, refusals.refuse
_WAITING: set[tuple[int, int]] = set()


def _noted(state: Any, request: int, reason: str, *rest: Any, **more: Any) -> None:
    _refuse(state, request, reason, *rest, **more)  # type: ignore[arg-type]
    if reason == "writing_back":
        _WAITING.add((id(state), request))


def _called_off(state: Any, event: Any) -> None:
    _abort(state, event)
    if (id(state), event.request) in _WAITING:
        state.writing_back = [0] * len(state.writing_back)


def plant(patch: Patch) -> None:
    _WAITING.clear()
    patch(refusals, "refuse", _noted)
    patch(admission, "abort", _called_off)
