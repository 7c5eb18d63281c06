"""Sliding-window attention: a token attends to the last `window` tokens, so a prefix requires the
shortest suffix of its path that covers them. If the path is shorter, it requires the whole path.

    path     |-- a --|---- b ----|- c -|--- d ---|
    window                     |--------------->  b, c and d are required, a may be a tombstone
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..config import Config
from ..errors import CallerError
from ..types import Pages, kept
from .base import ComponentSettings, Residency, Shape

RESIDENCY: Residency = "window"


@dataclass(frozen=True, slots=True)
class Settings(ComponentSettings):
    """window_tokens: tokens that a token attends to, including itself. Raises CallerError for less
    than 1."""

    component: ClassVar[str] = "swa"
    window_tokens: int

    def __post_init__(self) -> None:
        if self.window_tokens < 1:
            raise CallerError(f"swa_window: expected at least 1 token, found {self.window_tokens}")

    @classmethod
    def of(cls, shape: Shape) -> Settings:
        return cls(shape.window_tokens)


class SlidingWindow:
    name = "swa"
    positional = True
    slots = 0
    least_slots = 0
    per_path = 0

    def __init__(self, window_tokens: int, page_size: int) -> None:
        self.window_tokens = window_tokens
        self.window_pages = -(-window_tokens // page_size)
        self.interval = page_size
        self.least_pages = self.window_pages + 1

    def required(self, lengths: Sequence[int]) -> range:
        covered, first = 0, len(lengths)
        while first and covered < self.window_pages:
            first -= 1
            covered += lengths[first]
        return range(first, len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return kept(pages[:at]), kept(pages[at:])


def component(config: Config) -> SlidingWindow:
    """Raises CallerError without settings: the window has no default size."""
    settings = config.settings_of(Settings)
    if settings is None:
        raise CallerError("swa_window: expected at least 1 token for swa, found no settings")
    return SlidingWindow(settings.window_tokens, config.page_size)
