"""Planted in `eviction.give_up_host`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import eviction

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "With an exclusive host, a page that was loaded keeps its host copy."
KILLS = "exclusive"


def _keep(state: Any, nodes: Any) -> None:
    """Nothing is given up."""


def plant(patch: Patch) -> None:
    patch(eviction, "give_up_host", _keep)
