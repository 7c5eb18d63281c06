"""Mamba and other linear recurrences. One state summarises all tokens read so far, so a prefix
requires the state at exactly its end, and nothing above.

A request overwrites its working state with every token. Therefore it first copies the state of the
prefix that it reuses. It stores copies of its own state at depths where a node can end, in turn in
two checkpoint slots, so that the older copy stays intact while the newer one is written.
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
    """interval_tokens: tokens between depths at which a request stores states; 0 means one page.
    states_per_path: the largest number of states kept on one path; 0 means no limit. Raises
    CallerError for negative values."""

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
    least_slots = 1
    least_pages = 1

    def __init__(self, interval: int, per_path: int) -> None:
        self.interval = interval
        self.per_path = per_path

    def required(self, lengths: Sequence[int]) -> range:
        return range(max(0, len(lengths) - 1), len(lengths))

    def split(self, pages: Pages, at: int) -> tuple[Pages | None, Pages | None]:
        return None, pages


def component(config: Config) -> Mamba:
    """Raises CallerError for an interval that is not a multiple of the page size."""
    settings = config.settings_of(Settings) or Settings()
    interval = settings.interval_tokens or config.page_size
    if interval % config.page_size:
        raise CallerError(
            f"mamba_interval: expected a multiple of the page's {config.page_size} tokens, found "
            f"{interval}"
        )
    return Mamba(interval, settings.states_per_path)
