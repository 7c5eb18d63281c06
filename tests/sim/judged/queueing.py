"""The simulator as a queue whose times theory gives exactly.

One request runs at a time, all are equal and share nothing: the service time is one known number.

    D/D/1   arrivals at equal distances: no wait below full load; above it the wait of request n is
            n * (service - distance)
    M/D/1   arrivals at random (Poisson): the wait of each follows from the one in front (Lindley),
            exactly; the mean wait is load * service / (2 * (1 - load)) (Pollaczek and Khinchine),
            within a statistical bound

Theory promises more, which `sooner` checks: with the same arrivals in a shorter time (a higher
rate), no request waits less. It does not promise that once several requests run at a time, since
requests then share passes, and a larger token budget, more running requests or another order can
lengthen a single wait; nor with a cache, where a request that comes sooner may hit more or less.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

from hicache import models
from hicache.core.config import Config
from sim.engine.sequence import RequestResult
from sim.hardware import profile as hardware
from sim.keyed_draw import draw
from sim.options import EngineOptions, WorldOptions
from sim.world import World

from .again.pure import PlainCosts
from .workloads import PAGE, alone

_TOKENS = 24
_BATCHES = 20
_SIGMAS = 4
_MODEL = models.get("llama-3.1-8b")
_PROFILE = hardware.get("h100")


def service_ns(outputs: int) -> int:
    """The time of one request alone: its prefill, and a decode step for each further token."""
    costs = PlainCosts(_MODEL, _PROFILE)

    def step(chunks: list[tuple[int, int]], decoding: int, context: int) -> int:
        layers = costs.layers * costs.layer_ns(chunks, decoding, context)
        return layers + costs.overhead_ns(chunks, decoding)

    decoded = (step([], 1, _TOKENS + made) for made in range(1, outputs))
    return step([(0, _TOKENS)], 0, 0) + sum(decoded)


def served(arrivals_ns: Sequence[int], outputs: int = 1) -> tuple[RequestResult, ...]:
    """The results of equal requests on a server for one."""
    config = Config(page_size=PAGE, device_pages=(20,), host_pages=(0,))
    engine, options = (
        EngineOptions(max_running=1),
        WorldOptions(checks="off", times="pure-roofline"),
    )
    workload = alone(arrivals_ns, _TOKENS, outputs)
    world = World(workload, config, _MODEL, _PROFILE, engine=engine, options=options)
    return world.run().requests


def poisson(rate_per_s: float, count: int, seed: int) -> list[int]:
    """Arrival times in nanoseconds, exponential distances, drawn from the seed."""
    now, found = 0.0, []
    for number in range(count):
        now -= log((1 + draw(1 << 53, seed, number)) / (1 << 53)) / rate_per_s
        found.append(int(now * 1e9))
    return found


def distances_are_equal() -> None:
    """D/D/1, exactly."""
    for outputs in (1, 3):
        service = service_ns(outputs)
        for distance in (service // 3, service - 1, service, service + 1, 2 * service):
            found = served([number * distance for number in range(40)], outputs)
            waits = [number * max(0, service - distance) for number in range(40)]
            as_told(found, waits, service, outputs)
            end = 39 * distance + waits[-1] + service
            assert found[-1].finish_ns == end
            if distance <= service:
                assert end == 40 * service, "a server that always has work is never idle"


def arrivals_are_random() -> None:
    """M/D/1 in small, each wait exactly."""
    for seed, load in enumerate((0.3, 0.9, 1.2)):
        for outputs in (1, 2):
            service = service_ns(outputs)
            arrivals = poisson(load / service * 1e9, 60, seed)
            as_told(served(arrivals, outputs), lindley(arrivals, service), service, outputs)


def lindley(arrivals_ns: Sequence[int], service: int) -> list[int]:
    """The wait of each: that of the one in front and its service, less the time between."""
    waits, free = [], 0
    for arrival in arrivals_ns:
        waits.append(max(0, free - arrival))
        free = max(free, arrival) + service
    return waits


def as_told(
    found: Sequence[RequestResult], waits: Sequence[int], service: int, outputs: int
) -> None:
    """Raises AssertionError if a request waited otherwise."""
    first = service_ns(1)
    for one, wait in zip(found, waits, strict=True):
        assert one.admit_ns - one.arrival_ns == wait, f"{one}: expected to wait {wait} ns"
        assert one.first_token_ns - one.arrival_ns == wait + first
        assert one.finish_ns - one.arrival_ns == wait + service
        assert (one.queue_ns, one.load_ns, one.compute_ns) == (wait, 0, first)
        assert (one.computed_tokens, one.output_length) == (_TOKENS, outputs)


@dataclass(frozen=True)
class Mean:
    """A mean wait in service times: found, by theory, and the bound of their difference."""

    found: float
    theory: float
    bound: float


def mean_wait(load: float, count: int, seed: int) -> Mean:
    """The mean wait of M/D/1 against Pollaczek and Khinchine.

    The bound is 4 standard errors of the mean, from the means of 20 consecutive batches, which are
    nearly independent if a batch is much longer than a busy period. The server begins empty, which
    shortens the first waits; a tenth of the requests is left out for that.
    """
    service = service_ns(1)
    found = served(poisson(load / service * 1e9, count, seed))
    waits = [(one.admit_ns - one.arrival_ns) / service for one in found[count // 10 :]]
    size = len(waits) // _BATCHES
    means = [sum(waits[at * size : (at + 1) * size]) / size for at in range(_BATCHES)]
    mean = sum(means) / _BATCHES
    variance = sum((one - mean) ** 2 for one in means) / (_BATCHES - 1)
    return Mean(mean, load / (2 * (1 - load)), _SIGMAS * sqrt(variance / _BATCHES))


def sooner() -> None:
    """The same arrivals, faster: nobody waits less."""
    service = service_ns(1)
    before: list[int] = []
    for load in (0.2, 0.5, 0.8, 1.1):
        found = served(poisson(load / service * 1e9, 80, 7))
        waits = [one.admit_ns - one.arrival_ns for one in found]
        slack = [wait + 1 for wait in waits]  # arrival times are rounded to nanoseconds
        assert not before or all(map(int.__le__, before, slack))
        before = waits


JUDGES = (distances_are_equal, arrivals_are_random, sooner)
