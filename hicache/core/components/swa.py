"""Sliding-window attention: a token attends to the last `window` tokens, so a prefix requires the
shortest suffix of its path that covers them. Of a shorter path it requires everything.

    path     |-- a --|---- b ----|- c -|--- d ---|
    window                     |--------------->  b, c and d are required, a may be a tombstone
"""

from __future__ import annotations

from collections.abc import Sequence

from ..config import Config
from ..errors import CallerError
from ..types import Pages, kept


class SlidingWindow:
    name = "swa"
    positional = True
    slots = least_slots = per_path = 0

    def __init__(self, window_pages: int, page_size: int) -> None:
        self.window_pages = window_pages
        self.interval = page_size
        self.least_pages = window_pages + 1

    def required(self, lengths: Sequence[int]) -> range:
        covered, first = 0, len(lengths)
        while first and covered < self.window_pages:
            first -= 1
            covered += lengths[first]
        return range(first, len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return kept(pages[:at]), kept(pages[at:])


def component(config: Config) -> SlidingWindow:
    """Raises CallerError for a window below 1 token."""
    if config.swa_window < 1:
        raise CallerError(
            f"swa_window: expected at least 1 token where swa is a component, found "
            f"{config.swa_window}"
        )
    return SlidingWindow(-(-config.swa_window // config.page_size), config.page_size)
