"""Mamba and other linear recurrences: one state carries all that was read, so a prefix requires
the state at exactly its end, and nothing above.

A request overwrites its working state at every token, so it copies the state of the prefix that it
reuses before it runs, and leaves copies of its own at depths that a tree's node can end at, in
turns in the two halves of a ping-pong buffer: the older one stays whole while the newer is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..config import Config
from ..errors import CallerError
from ..types import Pages
from .base import ComponentSettings, Residency, Shape

RESIDENCY: Residency = "state"


@dataclass(frozen=True, slots=True)
class Settings(ComponentSettings):
    """interval_tokens: between the depths at which a request leaves states; 0 is one page.
    states_per_path: states kept on one path of the tree; 0 is all of them. Raises CallerError for
    less than 0."""

    component: ClassVar[str] = "mamba"
    interval_tokens: int = 0
    states_per_path: int = 0

    def __post_init__(self) -> None:
        for name, value in (
            ("mamba_interval", self.interval_tokens),
            ("mamba_states_per_path", self.states_per_path),
        ):
            if value < 0:
                raise CallerError(f"{name}: expected 0 or more, found {value}")

    @classmethod
    def of(cls, shape: Shape) -> Settings:
        return cls(shape.interval_tokens, shape.states_per_path)


class Mamba:
    name = "mamba"
    positional = False
    window_tokens = 0
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
    """Raises CallerError for an interval that is no multiple of the page."""
    settings = config.settings_of(Settings) or Settings()
    interval = settings.interval_tokens or config.page_size
    if interval % config.page_size:
        raise CallerError(
            f"mamba_interval: expected a multiple of the page's {config.page_size} tokens, found "
            f"{interval}"
        )
    return Mamba(interval, settings.states_per_path)
