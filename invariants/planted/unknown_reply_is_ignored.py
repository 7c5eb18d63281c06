"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.core import Core
from hicache.core.events import Reply

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A reply to a flight that was never issued is ignored instead of refused."
KILLS = ""
FAULTS = ("unknown reply",)


def _deaf(real: Any) -> Any:
    def handle(core: Any, event: Any) -> list[Any]:
        if isinstance(event, Reply) and event.flight >= core._state.next_flight:
            return []
        return list(real(core, event))

    return handle


def plant(patch: Patch) -> None:
    patch(Core, "handle", _deaf(Core.handle))
