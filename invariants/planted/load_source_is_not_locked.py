"""Planted in `transfers.lock_for_load`: only the device side of the path is locked."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers
from hicache.core.radix import locks
from hicache.core.types import Tier

from .base import Patch

ROWS: tuple[str, ...] = ("C1",)
TITLE = "The host copies that a load reads can be evicted before its reply."
KILLS = "lock-bal"


def _device_only(state: Any, flight: Any, path: Any, loads: Any) -> None:
    flight.receipt = locks.open_receipt(state, f"load {flight.id}")
    locks.lock(state, flight.receipt, path, Tier.DEVICE)


def plant(patch: Patch) -> None:
    patch(transfers, "lock_for_load", _device_only)
