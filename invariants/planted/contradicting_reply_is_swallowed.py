"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.core import Core

from ._swallowed import swallowing
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A reply that contradicts the one before is ignored instead of refused."
KILLS = ""
FAULTS = ("contradicting reply",)


def _same(last: Any, event: Any) -> bool:
    return bool(event._replace(ok=not event.ok) == last)


def plant(patch: Patch) -> None:
    patch(Core, "handle", swallowing(Core.handle, _same))
