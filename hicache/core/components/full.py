"""Full attention: every token attends to all earlier tokens, so the whole path is required."""

from __future__ import annotations

from collections.abc import Sequence

from ..config import Config
from ..types import Pages, kept
from .base import UNBOUNDED, Residency

RESIDENCY: Residency = "path"


class Full:
    name = "full"
    positional = True
    window_tokens = UNBOUNDED
    window_pages = UNBOUNDED
    slots = 0
    least_slots = 0
    least_pages = 1
    per_path = 0

    def __init__(self, interval: int) -> None:
        self.interval = interval

    def required(self, lengths: Sequence[int]) -> range:
        return range(len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return kept(pages[:at]), kept(pages[at:])


def component(config: Config) -> Full:
    return Full(config.page_size)
