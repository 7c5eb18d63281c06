"""Bugs in `components`: what an attention type requires of a prefix."""

from __future__ import annotations

from typing import Any

from hicache.core.components import swa
from hicache.core.components.full import Full
from hicache.core.components.swa import SlidingWindow

from .base import Patch, bug

_component = swa.component


@bug(kills="rss-bound")
def split_halves_are_views_of_one_array(patch: Patch) -> None:
    """The halves of a split node are views, so a small half keeps the whole array in memory."""

    def views(self: Any, pages: Any, at: int) -> tuple[Any, Any]:
        return pages[:at], pages[at:]

    patch(Full, "split", views)
    patch(SlidingWindow, "split", views)


@bug(swa, "component", rows=("F6",), kills="spec")
def window_is_rounded_down(config: Any) -> swa.SlidingWindow:
    """A window that is no multiple of the page size counts as fewer whole pages."""
    made = _component(config)
    made.window_pages = made.window_tokens // config.page_size
    made.least_pages = made.window_pages + 1
    return made
