"""Planted in `transfers.lock_for_load`: only the first component is locked."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers
from hicache.core.radix import locks
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("C2",)
TITLE = "Host copies of windows and states can go while a load still reads them."
KILLS = "lock-bal"


def _backbone_only(state: Any, flight: Any, path: Any, loads: Any) -> None:
    flight.receipt = locks.open_receipt(state, f"load {flight.id}")
    locks.lock(state, flight.receipt, path, Tier.DEVICE)
    locks.lock(state, flight.receipt, path, Tier.HOST)


def plant(patch: Patch) -> None:
    patch(transfers, "lock_for_load", _backbone_only)
