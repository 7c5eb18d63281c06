"""Which load a machine is played at: a short replay says about how much it can do, and a search
finds the largest load that it serves.

The pilot plays the beginning of the trace without host memory. It says about how much the trace
offers of what the machine can do.

The bracket of the search begins at a guess, widens by ever larger steps until it has both ends, and
is halved (on a logarithmic scale) until they are within 5 %. Loads have three digits, so that they
can be typed. Which loads are served is a rule of deciding/serving.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import sqrt

from ..formats.base import Trace
from ..replaying import modes
from ..replaying.options import ReplayOptions
from ..replaying.settings import resolve
from ..reporting.overload import load_of, slower
from . import plan
from .replays import Document, Replays

REQUESTS = 1_500


def pilot(options: ReplayOptions, traces: Callable[[ReplayOptions], Trace]) -> Fraction:
    """About the speed at which a machine without host memory keeps up. Ctrl-C raises
    KeyboardInterrupt."""
    limit = min(options.limit or REQUESTS, REQUESTS)
    options = replace(options, limit=limit, check="off", sample=None)
    trace = traces(options)
    settings, paged = resolve(options, trace)
    run = modes.run(
        trace,
        paged,
        settings,
        None,
        time.perf_counter(),
        shown=lambda *_: nullcontext(lambda done: None),
    )
    if run.interrupted or run.latency is None:
        raise KeyboardInterrupt
    load = load_of(trace.jobs, run.latency.requests)
    is_given = options.request_rate is not None or not load.overloaded
    return settings.speed if is_given else Fraction(slower(load, settings.speed))


WITHIN = 1.05  # the ends of a bracket that is narrow enough
_STEP = 1.4  # the first one; each further one is the square of the one before
_MOST_STEPS = 5  # in one direction
_DIGITS = 3


@dataclass(slots=True)
class Search:
    """start: the first load. tried: whether each load was served."""

    start: Fraction
    tried: dict[Fraction, bool] = field(default_factory=dict)

    @property
    def served(self) -> Fraction | None:
        """The largest load that is served, below every one that is not."""
        low = [load for load, good in self.tried.items() if good]
        high = self.refused
        return max((load for load in low if high is None or load < high), default=None)

    @property
    def refused(self) -> Fraction | None:
        """The smallest load that is not served."""
        return min((load for load, good in self.tried.items() if not good), default=None)

    def next(self) -> Fraction | None:
        """The load to try next; None if the bracket is narrow enough, or has no other end."""
        served, refused = self.served, self.refused
        if served is None and refused is None:
            return typed(float(self.start))
        if served is not None and refused is not None:
            if refused <= served * Fraction(WITHIN):
                return None
            return typed(sqrt(float(served) * float(refused)))
        steps = len(self.tried)
        if steps > _MOST_STEPS:
            return None
        by = _STEP ** (2 ** (steps - 1))
        return typed(float(served) * by if served is not None else float(refused or 0) / by)


def typed(load: float) -> Fraction:
    """The load with three digits."""
    return Fraction(f"{load:.{_DIGITS}g}")


def bracketed(
    machines: Sequence[plan.Named],
    starts: Sequence[Fraction],
    replays: Replays,
    serves: Callable[[Document], bool],
) -> list[Search]:
    """The search of each machine, all side by side, as far as the replays came."""
    searches = [Search(start) for start in starts]
    while wanted := [
        (search, load, plan.loaded(machine, load))
        for search, machine in zip(searches, machines, strict=True)
        if (load := search.next()) is not None
    ]:
        found = replays.run([named for _, _, named in wanted])
        if None in found:
            break
        for (search, load, _), document in zip(wanted, found, strict=True):
            search.tried[load] = serves(document or {})
    return searches
