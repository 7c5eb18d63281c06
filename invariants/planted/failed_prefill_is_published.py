"""Planted in `admission.prefill_done`: the result of the reply is ignored."""

from __future__ import annotations

from typing import Any

from hicache.core import admission

from .base import Patch

ROWS: tuple[str, ...] = ("C16",)
TITLE = "The pages of a pass that failed are put into the tree."
KILLS = ""
FAULTS = (
    "pass error",
    "pass error after its load",
    "fail",
    "submit error",
    "late error",
)

_prefill_done = admission.prefill_done


def _fine(state: Any, event: Any) -> None:
    _prefill_done(state, event._replace(ok=True))


def plant(patch: Patch) -> None:
    patch(admission, "prefill_done", _fine)
