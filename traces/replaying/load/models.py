"""Load models: when requests arrive that wait for no other request.

A load model is an entry of MODELS. It replaces times and nothing else: requests keep their order
and what they ask for. The same seed gives the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError

RECORDED = "recorded"
NS_PER_S = 1_000_000_000
Times = NDArray[np.int64]


class Parameter(NamedTuple):
    """default: of a time in seconds, else a number. is_time: whether its value has a unit."""

    default: float
    is_time: bool = False


class Model(NamedTuple):
    """summary: one line for the help. arrivals: takes the times of the trace (one at least), the
    requests per second on average (0 if none was given and the model needs none), a value for each
    parameter, and a generator; returns the arrival of each request in nanoseconds, never earlier
    than that of the one before."""

    summary: str
    arrivals: Callable[[Times, float, Mapping[str, float], np.random.Generator], Times]
    needs_rate: bool = True
    parameters: Mapping[str, Parameter] = {}


class Arrivals(NamedTuple):
    """A load model and its parameters, times in seconds."""

    name: str = RECORDED
    parameters: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        known = MODELS[self.name].parameters
        units = [f"{name}={value:g}{'s' * known[name].is_time}" for name, value in self.parameters]
        return f"{self.name}:{','.join(units)}" if units else self.name


def from_gaps(gaps_s: NDArray[np.float64]) -> Times:
    """The first request at 0, and each of the others so long after the one before it."""
    ends = np.cumsum(np.rint(gaps_s * NS_PER_S).astype(np.int64))
    return np.concatenate((np.zeros(1, dtype=np.int64), ends))


def _recorded(
    recorded: Times, rate_per_s: float, given: Mapping[str, float], draw: np.random.Generator
) -> Times:
    span_ns = int(recorded[-1] - recorded[0])
    if not rate_per_s or not span_ns:
        return recorded
    wanted_ns = (len(recorded) - 1) * NS_PER_S / rate_per_s
    stretched: NDArray[np.float64] = (recorded - recorded[0]) * (wanted_ns / span_ns)
    return np.rint(stretched).astype(np.int64)


def _gamma(
    recorded: Times, rate_per_s: float, given: Mapping[str, float], draw: np.random.Generator
) -> Times:
    """The coefficient of variation (CV) is the standard deviation of the gaps over their mean: 1 is
    a Poisson process, 0 an even distance. vLLM's and SGLang's `--burstiness` is the shape."""
    count, mean_s = len(recorded) - 1, 1 / rate_per_s
    if not given["cv"]:
        return from_gaps(np.full(count, mean_s))
    shape = 1 / given["cv"] ** 2
    return from_gaps(draw.gamma(shape, mean_s / shape, count))


def _on_off(
    recorded: Times, rate_per_s: float, given: Mapping[str, float], draw: np.random.Generator
) -> Times:
    """A Poisson process while a phase is on, at the mean rate times (on + off) / on."""
    on_s, off_s = given["on"], given["off"]
    if not on_s:
        raise CallerError("on-off: expected a time above 0 for on, found 0; give one such as on=5s")
    gaps_s = draw.exponential(on_s / (on_s + off_s) / rate_per_s, len(recorded) - 1)
    busy_ns = from_gaps(gaps_s)  # the time without the phases that are off
    phases = busy_ns // round(on_s * 1e9)
    return busy_ns + phases * round(off_s * 1e9)


MODELS = {
    "at-once": Model(
        "all requests at the start",
        lambda recorded, rate, given, draw: np.zeros_like(recorded),
        needs_rate=False,
    ),
    "gamma": Model(
        "gamma-distributed gaps with a coefficient of variation; above 1 is bursty",
        _gamma,
        parameters={"cv": Parameter(2.0)},
    ),
    "on-off": Model(
        "bursts of exponential gaps, and nothing between them",
        _on_off,
        parameters={"on": Parameter(10.0, is_time=True), "off": Parameter(30.0, is_time=True)},
    ),
    "poisson": Model(
        "exponential gaps, as of many independent users",
        lambda recorded, rate, given, draw: from_gaps(
            draw.exponential(1 / rate, len(recorded) - 1)
        ),
    ),
    RECORDED: Model(
        "the times of the trace, stretched or compressed to --request-rate",
        _recorded,
        needs_rate=False,
    ),
    "uniform": Model(
        "an even distance between requests",
        lambda recorded, rate, given, draw: from_gaps(np.full(len(recorded) - 1, 1 / rate)),
    ),
}
