"""Planted in `swa.component`: rounding lets the frontier reach the boundary."""

from __future__ import annotations

from typing import Any

from hicache.core.components import swa

from .base import Patch

ROWS: tuple[str, ...] = ("F6",)
TITLE = "A window that is no multiple of the page size counts as fewer whole pages."
KILLS = "near"


def _floor(config: Any) -> swa.SlidingWindow:
    return swa.SlidingWindow(config.swa_window // config.page_size, config.page_size)


def plant(patch: Patch) -> None:
    patch(swa, "component", _floor)
