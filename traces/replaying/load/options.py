"""The options of load as values: a think time, and what `ReplayOptions` has of the load."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from .models import Arrivals
from .slo import spelled


@dataclass(frozen=True, slots=True)
class ThinkTime:
    """What passes between the end of a turn and the next one. ns: None for the recorded time."""

    ns: int | None

    def __str__(self) -> str:
        if self.ns is None:
            return "recorded"
        return spelled(self.ns) if self.ns else "none"


_RECORDED = Arrivals()


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """When requests arrive. concurrency: 0 for arrivals at their times. request_rate: None for that
    of the trace. think_time: None for the recorded one. scale_sessions: times the sessions of the
    trace."""

    arrivals: Arrivals = _RECORDED
    request_rate: Fraction | None = None
    concurrency: int = 0
    closed_loop: bool = False
    think_time: ThinkTime | None = None
    scale_sessions: Fraction = Fraction(1)

    def as_options(self) -> dict[str, object]:
        """Every option of the load, by its name on the command line."""
        rate = self.request_rate
        return {
            "arrivals": str(self.arrivals),
            "request_rate": None if rate is None else float(rate),
            "concurrency": self.concurrency or None,
            "closed_loop": self.closed_loop,
            "think_time": None if self.think_time is None else str(self.think_time),
            "scale_sessions": float(self.scale_sessions),
        }


class LoadOptions(Protocol):
    """What decides when requests arrive. None: not given."""

    @property
    def mode(self) -> str: ...
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
    def scale_sessions(self) -> Fraction | None: ...
    @property
    def seed(self) -> int | None: ...
    @property
    def spread(self) -> bool | None: ...


def settings_of(options: LoadOptions) -> LoadSettings:
    return LoadSettings(
        arrivals=options.arrivals or _RECORDED,
        request_rate=options.request_rate,
        concurrency=options.concurrency or 0,
        closed_loop=bool(options.closed_loop),
        think_time=options.think_time,
        scale_sessions=options.scale_sessions or Fraction(1),
    )
