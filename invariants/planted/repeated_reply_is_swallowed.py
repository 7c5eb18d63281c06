"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.core import Core

from ._swallowed import swallowing
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "An identical reply that was taken before is ignored instead of refused."
KILLS = ""
FAULTS = ("repeated reply",)


def _same(last: Any, event: Any) -> bool:
    return bool(event == last)


def plant(patch: Patch) -> None:
    patch(Core, "handle", swallowing(Core.handle, _same))
