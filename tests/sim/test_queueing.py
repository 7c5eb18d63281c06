"""The simulator as a queue whose times theory gives exactly.

One request runs at a time, all are equal and share nothing: the service time is one known number,
and the wait of each request follows from the one in front (Lindley), whether they arrive at equal
distances (D/D/1) or at random (M/D/1).
"""

from collections.abc import Sequence
from math import log

import pytest

from sim.content import draw
from sim.engine.sequence import RequestResult
from sim.options import EngineOptions, WorldOptions
from sim.times.base import make

from .rig import MODEL, PROFILE, run
from .workloads import alone

_TOKENS = 24


def service_ns(outputs: int) -> int:
    """The time of one request alone: its prefill, and a decode step for each further token."""
    costs = make("pure-roofline", MODEL, PROFILE)
    decoded = (costs.step_ns([], 1, _TOKENS + made) for made in range(1, outputs))
    return costs.step_ns([(0, _TOKENS)], 0, 0) + sum(decoded)


def served(arrivals_ns: Sequence[int], outputs: int = 1) -> tuple[RequestResult, ...]:
    """The results of equal requests on a server for one."""
    options = WorldOptions(times="pure-roofline")
    engine = EngineOptions(max_running=1)
    return run(alone(arrivals_ns, _TOKENS, outputs), 20, 0, engine=engine, options=options).requests


def poisson(rate_per_s: float, count: int, seed: int) -> list[int]:
    """Arrival times in nanoseconds, exponential distances, drawn from the seed."""
    now, numbers = 0.0, []
    for number in range(count):
        now -= log((1 + draw(1 << 53, seed, number)) / (1 << 53)) / rate_per_s
        numbers.append(int(now * 1e9))
    return numbers


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_each_request_waits_as_theory_says(outputs: int) -> None:
    service = service_ns(outputs)
    distances = (service // 3, service - 1, service, service + 1, 2 * service)
    offered = [[number * distance for number in range(40)] for distance in distances]
    loads = enumerate((0.3, 0.9, 1.2))
    offered += [poisson(load / service * 1e9, 60, seed) for seed, load in loads]
    first = service_ns(1)
    for arrivals in offered:
        free = 0
        for request, arrival in zip(served(arrivals, outputs), arrivals, strict=True):
            wait = max(0, free - arrival)
            free = arrival + wait + service
            assert request.admit_ns - request.arrival_ns == wait, (
                f"{request}: expected to wait {wait} ns"
            )
            assert request.first_token_ns - request.arrival_ns == wait + first
            assert request.finish_ns == free
            assert (request.queue_ns, request.load_ns, request.compute_ns) == (wait, 0, first)
            assert (request.computed_tokens, request.output_length) == (_TOKENS, outputs)
