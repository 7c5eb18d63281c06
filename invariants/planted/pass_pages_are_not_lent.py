"""Planted in `transfers.lend_own`: no pages are lent to the pass."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers
from hicache.core.types import NO_PAGES

from .base import Patch

ROWS: tuple[str, ...] = ("C5",)
TITLE = "Pages of a request that is gone are free while its last pass still writes them."
KILLS = "pin-io"


def _lend_nothing(state: Any, request: Any, flight: Any) -> None:
    flight.lent.extend(NO_PAGES for _ in state.components)


def plant(patch: Patch) -> None:
    patch(transfers, "lend_own", _lend_nothing)
