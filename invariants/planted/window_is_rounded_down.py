"""Planted in `swa.component`: the window is rounded down to pages."""

from __future__ import annotations

from typing import Any

from hicache.core.components import swa

from .base import Patch

ROWS: tuple[str, ...] = ("F6",)
TITLE = "A window that is no multiple of the page size counts as fewer whole pages."
KILLS = "near"


_component = swa.component


def _floor(config: Any) -> swa.SlidingWindow:
    made = _component(config)
    made.window_pages = made.window_tokens // config.page_size
    made.least_pages = made.window_pages + 1
    return made


def plant(patch: Patch) -> None:
    patch(swa, "component", _floor)
