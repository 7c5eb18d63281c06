"""Mamba and other linear recurrences: one state carries all that was read, so a prefix requires
the state at exactly its end, and nothing above.

A request overwrites its working state at every token, so it copies the state of the prefix that it
reuses before it runs, and leaves copies of its own at depths that a tree's node can end at, in
turns in the two halves of a ping-pong buffer: the older one stays whole while the newer is written.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..config import Config
from ..errors import CallerError
from ..types import Pages


class Mamba:
    name = "mamba"
    positional = False
    window_pages = 1
    slots = 3
    least_slots = least_pages = 1

    def __init__(self, interval: int, per_path: int) -> None:
        self.interval = interval
        self.per_path = per_path

    def required(self, lengths: Sequence[int]) -> range:
        return range(max(0, len(lengths) - 1), len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return None, pages


def component(config: Config) -> Mamba:
    """Raises CallerError for an interval that is no multiple of the page, or a negative limit."""
    interval = config.mamba_interval or config.page_size
    if interval < 1 or interval % config.page_size:
        raise CallerError(
            f"mamba_interval: expected a multiple of the page's {config.page_size} tokens, found "
            f"{config.mamba_interval}"
        )
    if config.mamba_states_per_path < 0:
        raise CallerError(
            f"mamba_states_per_path: expected 0 or more, found {config.mamba_states_per_path}"
        )
    return Mamba(interval, config.mamba_states_per_path)
