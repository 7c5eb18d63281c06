"""Planted in `admission._withdraw`: it releases without an earlier lock."""

from __future__ import annotations

from typing import Any

from hicache.core import admission
from hicache.core.radix import locks

from .base import Patch

ROWS: tuple[str, ...] = ("B11",)
TITLE = "A request that was never admitted releases a lock when it ends."
KILLS = ""

_withdraw = admission._withdraw


def _always_release(state: Any, request: Any) -> None:
    admitted = request.admitted
    _withdraw(state, request)
    if not admitted:
        locks.release(state, request.receipt)


def plant(patch: Patch) -> None:
    patch(admission, "_withdraw", _always_release)
