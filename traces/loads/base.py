"""The interface of load models: when requests arrive that wait for no other request.

A load model is one file in this folder with SUMMARY (one line for the help), NEEDS_RATE (whether
it cannot do without a rate), PARAMETERS, and `arrivals(recorded, rate_per_s, given, draw)`. It
replaces times and nothing else: requests keep their order and what they ask for. The same seed
gives the same times. Does not know tokens, sessions or requests that wait for others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hicache import registry

LOADS = "traces.loads"
RECORDED = "recorded"
NS_PER_S = 1_000_000_000


class Parameter(NamedTuple):
    """default: of a time in seconds, else a number. is_time: whether its value has a unit."""

    default: float
    is_time: bool = False


class Arrivals(NamedTuple):
    """A load model and its parameters, times in seconds."""

    name: str = RECORDED
    parameters: tuple[tuple[str, float], ...] = ()

    def __str__(self) -> str:
        known = load(self.name).PARAMETERS
        units = [f"{name}={value:g}{'s' * known[name].is_time}" for name, value in self.parameters]
        name = self.name.replace("_", "-")
        return f"{name}:{','.join(units)}" if units else name


class Model(Protocol):
    SUMMARY: str
    NEEDS_RATE: bool
    PARAMETERS: Mapping[str, Parameter]

    def arrivals(
        self,
        recorded: NDArray[np.int64],
        rate_per_s: float,
        given: Mapping[str, float],
        draw: np.random.Generator,
    ) -> NDArray[np.int64]:
        """The arrival of each request in nanoseconds, never earlier than that of the one before.

        recorded: the times of the trace, at least one. rate_per_s: requests per second on average;
        0 if none was given and the model needs none. given: a value for each of PARAMETERS.
        """


def load(name: str) -> Model:
    """The load model of that name. Raises CallerError that lists them."""
    return cast(Model, registry.load(LOADS, name))


def from_gaps(gaps_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """The first request at 0, and each of the others so long after the one before it."""
    ends = np.cumsum(np.rint(gaps_s * NS_PER_S).astype(np.int64))
    return np.concatenate((np.zeros(1, dtype=np.int64), ends))
