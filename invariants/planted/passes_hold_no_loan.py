"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The pages of a running pass are not lent to it, so an abort frees them at once."
KILLS = "pin-io"


def _lend_nothing(state: Any, request: Any, flight: Any) -> None:
    flight.lent.clear()


def plant(patch: Patch) -> None:
    patch(transfers, "lend_own", _lend_nothing)
