"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import stores
from invariants.reasons import Reason

from .base import Patch

ROWS = ("G11",)
TITLE = "A store that has failed is not tried again."
KILLS = "stored"
FAULTS = ("half of it",)
EXCUSES = (Reason.GIVEN_UP,)


def _count_only(state: Any, nodes: Any, failed: Any) -> None:
    for node in failed or nodes:
        node.store_failures = node.store_failures + 1 if failed else 0


def plant(patch: Patch) -> None:
    patch(stores, "_judge", _count_only)
