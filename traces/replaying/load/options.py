"""The options of load as values: a think time, and what `ReplayOptions` has of the load."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from ...loads.base import Arrivals
from .slo import spelled


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """What passes between the end of a turn and the next one. ns: None for the recorded time."""

    ns: int | None

    def __str__(self) -> str:
        if self.ns is None:
            return "recorded"
        return spelled(self.ns) if self.ns else "none"


class LoadOptions(Protocol):
    """What decides when requests arrive. None: not given."""

    @property
    def arrivals(self) -> Arrivals | None: ...
    @property
    def request_rate(self) -> Fraction | None: ...
    @property
    def concurrency(self) -> int | None: ...
    @property
    def closed_loop(self) -> bool | None: ...
    @property
    def think_time(self) -> ThinkTime | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def spread(self) -> bool | None: ...
