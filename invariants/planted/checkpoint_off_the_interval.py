"""Planted in `core._new_state`: the depth of a boundary is rounded to the page."""

from __future__ import annotations

from typing import Any

from hicache.core import core

from .base import Patch

ROWS: tuple[str, ...] = ("E11",)
TITLE = "States are stored at every page, although only multiples of the interval are boundaries."
KILLS = "lru"

_new_state = core._new_state


def _by_page(config: Any) -> Any:
    state = _new_state(config)
    state.interval = config.page_size
    return state


def plant(patch: Patch) -> None:
    patch(core, "_new_state", _by_page)
