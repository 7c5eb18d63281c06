"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.core import Core
from hicache.core.events import Reply

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A reply that contradicts the one before is swallowed instead of refused."
KILLS = ""
FAULTS = ("changed reply",)

_LAST: list[Any] = [None]


def _tolerant(real: Any) -> Any:
    def handle(core: Any, event: Any) -> list[Any]:
        if isinstance(event, Reply) and _LAST[0] == (id(core), event._replace(ok=not event.ok)):
            return []
        outcomes = real(core, event)
        if isinstance(event, Reply):
            _LAST[0] = (id(core), event)
        return list(outcomes)

    return handle


def plant(patch: Patch) -> None:
    _LAST[0] = None
    patch(Core, "handle", _tolerant(Core.handle))
