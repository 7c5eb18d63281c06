"""What a sampled trace stands for: sizes and load are scaled, and the error of it is measured.

With a part p of the requests, the same hits need p of the capacity (SHARDS, FAST'15). So that the
machine has the load of the whole trace, arrivals come 1/p times as fast; then as many requests run
at once as in the whole trace, and the device keeps room for them:

    host memory     p x host
    device          running + p x (device - running)      tokens
    speed           speed / p

Each machine and each replica has a device of its own, and what runs at once on it is measured (in a
study) or estimated (see candidates). The error is measured on the curve of hits, which is exact for
the whole trace. Does not choose the requests; see formats/_with_jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..curves.distances import Curve, lru_curve
from ..formats.base import Trace
from ..replaying.defaults import HARDWARE
from ..replaying.options import ReplayOptions
from ..sweeping.grid import Point
from .candidates import Candidate, Machines

_CAPACITIES = 50
# What a replay of a request and of a page costs, measured on the conversation trace: used to choose
# a part for a budget, so that the same budget gives the same part on any machine.
_REQUEST_S, _PAGE_S = 4e-4, 4e-6
_DIGITS = 2
_LONG_S = 3600.0
# the search of a machine on the whole conversation trace takes as long as so many of such replays
SEARCH = 60
_CORES = 2


@dataclass(frozen=True, slots=True)
class Error:
    """The error of hit rates on the sampled trace, absolute: mean and largest over capacities.
    part: the tokens that were sampled, of all."""

    mean: float
    largest: float
    part: float


def error_of(
    trace: Trace,
    some: Trace,
    exact: Curve,
    rate: Fraction,
    page_size: int,
    between: tuple[int, int] | None = None,
) -> Error:
    """exact: the curve of the whole trace. some: the part. between: capacities in pages; None for
    those from a hundredth of all pages to all."""
    curve = lru_curve(some.paged(page_size))
    whole_tokens, tokens = trace.jobs.input_tokens, some.jobs.input_tokens
    least, most = between or (exact.unique // 100, exact.unique)
    capacities = np.geomspace(max(1, least), max(1, most), _CAPACITIES)
    errors = [
        abs(
            exact.hit_tokens(capacity) / whole_tokens
            - curve.hit_tokens(int(capacity * rate)) / tokens
        )
        for capacity in map(int, capacities)
    ]
    return Error(sum(errors) / len(errors), max(errors), tokens / whole_tokens)


def part_for(budget_s: float, trace: Trace, page_size: int, points: int, jobs: int) -> Fraction:
    """The part of the trace that `points` replays have time for; 1 if for all."""
    whole_s = len(trace.jobs) * _REQUEST_S + trace.jobs.input_tokens / page_size * _PAGE_S
    part = budget_s * jobs / (points * whole_s)
    if part >= 1:
        return Fraction(1)
    return max(Fraction(1, 1000), Fraction(f"{part:.{_DIGITS}g}"))


def takes_hours(trace: Trace, page_size: int) -> bool:
    """Whether the search of a machine does, on the whole trace and two cores."""
    return part_for(_LONG_S, trace, page_size, SEARCH, _CORES) < 1


def scaled(
    point: Point,
    rate: Fraction,
    device_tokens: int,
    running_tokens: int,
    largest: int,
    page_bytes: int,
    load: Fraction | None = None,
) -> Point:
    """The point for the sampled trace. device_tokens: of the whole machine. largest: tokens of the
    largest request, which has to fit. page_bytes: of all ranks; a pool has one page at least.
    load: the part of the prompt tokens, where arrivals are to keep the load of the whole trace by
    that."""
    options = point.options
    running = min(running_tokens, device_tokens)
    kept = max(largest, running + int(rate * (device_tokens - running)))
    given: dict[str, Any] = {"sample": rate, "device_tokens": kept, "device_pages": None}
    if options.request_rate is None and options.concurrency is None:
        given["speed"] = (options.speed or Fraction(1)) / (load or rate)
    for name in ("host_bytes", "storage_size"):
        size = getattr(options, name)
        given[name] = max(page_bytes, int(size * rate)) if size else size
    return Point(replace(options, **given), point.varied)


def unscaled(
    document: Mapping[str, Any],
    rate: Fraction,
    speed: Fraction | None,
    load: Fraction | None = None,
    device_pages: int = 0,
) -> dict[str, Any]:
    """The document of a point with the sizes that it stands for. speed: as it was scaled. load: as
    in `scaled`. device_pages: of the whole machine, where they are to be named."""
    by = 1 / rate
    found: dict[str, Any] = dict(document)
    found["config"] = _grown(document["config"], ("host_pages", "host_tokens"), by)
    if device_pages:
        size = found["config"]["page_size"]
        found["config"] |= {"device_pages": device_pages, "device_tokens": device_pages * size}
    if speed is not None:
        found["config"] |= {"speed": float(speed * (load or rate))}
    uses: dict[str, Any] = {}
    for name, use in document["components"].items():
        uses[name] = dict(use)
        for key in ("capacity", "pool_bytes_per_rank", "pool_bytes_total"):
            uses[name][key] = _grown(use[key], ("host",), by)
    found["components"] = uses
    if "variant" in document:
        found["variant"] = document["variant"] | {"config": found["config"]}
    return found


def _grown(numbers: Mapping[str, Any], names: Sequence[str], by: Fraction) -> dict[str, Any]:
    return {name: int(one * by) if name in names else one for name, one in numbers.items()}


class Scaling:
    """From points of candidates to those of a part, and back. The first requests alone (see trials)
    are played as they are. rate, load: the part of the groups, and of the prompt tokens. base: the
    options of every replay, for the whole trace."""

    def __init__(
        self,
        rate: Fraction,
        load: Fraction,
        base: ReplayOptions,
        machines: Machines,
        trace: Trace,
    ) -> None:
        self._rate, self._load, self._base, self._machines = rate, load, base, machines
        jobs = trace.jobs
        self._largest = int(
            (jobs.input_lengths.astype(np.int64) + jobs.output_lengths).max(initial=1)
        )

    def scaled(self, point: Point) -> Point:
        options, base = point.options, self._base
        if self._rate == 1 or options.limit != base.limit:
            return point
        hardware = options.hardware or HARDWARE
        core = self._machines.settings(hardware, options.tp).core
        size = core.page_size
        one = Candidate(hardware, options.tp, options.replicas or 1, options.host_bytes or 0)
        load = (options.scale_sessions or 1) / (base.scale_sessions or Fraction(1))
        for given, before in (
            (options.speed, base.speed),
            (options.request_rate, base.request_rate),
        ):
            load *= (given or 1) / (before or Fraction(1))
        return scaled(
            *(point, self._rate, core.device_pages[0] * size),
            *(self._machines.running(one, float(load)), -(-self._largest // size) * size),
            self._machines.page_bytes(one),
            self._load,
        )

    def unscaled(self, point: Point, document: Mapping[str, Any]) -> dict[str, Any]:
        options = point.options
        if options.sample is None:
            return dict(document)
        core = self._machines.settings(options.hardware or HARDWARE, options.tp).core
        return unscaled(document, self._rate, options.speed, self._load, core.device_pages[0])
