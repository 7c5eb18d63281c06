"""Planted in `eviction._refile`: it does nothing."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ("F10",)
TITLE = "A host copy that remains after an eviction is in no eviction queue of host."
KILLS = "hlru"
EXCUSES = (Reason.ON_HOST,)


def _nothing(state: Any, node: Any) -> None:
    pass


def plant(patch: Patch) -> None:
    patch(eviction, "_refile", _nothing)
