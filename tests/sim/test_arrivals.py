"""A fixed concurrency: never more requests in flight, and never fewer while one may arrive. The
client of a benchmark: what it sends next, when, and how many at once. And the simulator as a queue
whose times theory gives exactly: one request runs at a time, all are equal and share nothing, so
the wait of each follows from the one in front (Lindley), whether they arrive at equal distances
(D/D/1) or at random (M/D/1)."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import log
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.arrivals import Sender
from sim.clock import Clock
from sim.content import draw
from sim.engine.sequence import RequestResult
from sim.options import EngineOptions, WorldOptions
from sim.times.base import make, step_ns
from sim.workload import Job, SenderOptions
from tests.sim.rig import MODEL, PROFILE, run
from tests.sim.workloads import Prompts, alone, shared_prefixes


def _could_arrive(workload: Prompts, results: Any, now_ns: int, speed: Fraction) -> bool:
    """Whether a request has not arrived at this time although nothing keeps it from doing so."""
    for job, result in zip(workload.jobs, results, strict=True):
        may_from = 0
        if job.after >= 0:
            may_from = results[job.after].finish_ns + int(Fraction(job.arrival_ns) / speed)
        if may_from <= now_ns < result.arrival_ns:
            return True
    return False


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 999),
    count=st.integers(1, 24),
    concurrency=st.integers(1, 6),
    speed=st.sampled_from([Fraction(1), Fraction(5, 2)]),
    gap_ns=st.sampled_from([1, 10**6, 10**9]),
)
def test_as_many_are_in_flight_as_shall_be(
    seed: int, count: int, concurrency: int, speed: Fraction, gap_ns: int
) -> None:
    workload = shared_prefixes(seed, count, gap_ns=gap_ns)
    options = WorldOptions(checks="off", concurrency=concurrency, speed=speed)
    results = run(workload, 60, 0, options=options).requests
    assert [result.request for result in results] == list(range(count))
    for now_ns in {time for result in results for time in (result.arrival_ns, result.finish_ns)}:
        flying = sum(item.arrival_ns <= now_ns < item.finish_ns for item in results)
        assert flying <= concurrency
        if flying < concurrency:
            assert not _could_arrive(workload, results, now_ns, speed)
    for job, item in zip(workload.jobs, results, strict=True):
        if job.after >= 0:
            ended_ns = results[job.after].finish_ns
            assert item.arrival_ns >= ended_ns + int(Fraction(job.arrival_ns) / speed)
    again = run(workload, 60, 0, options=replace(options, checks="every"))
    assert again.requests == results


SECOND = 1_000_000_000


def chats(clients: int, rounds: int) -> list[Job]:
    """Turn r of client c has the index r * clients + c and waits for the turn before it."""
    return [
        Job(index, 0, 64, 8, index - clients if index >= clients else -1)
        for index in range(clients * rounds)
    ]


def sent(
    options: SenderOptions,
    jobs: Sequence[Job],
    service_ns: int = SECOND,
    speed: Fraction = Fraction(1),
) -> list[tuple[int, int]]:
    """(index, time) of each request as it is sent. Each takes `service_ns` times its index plus
    1, so that they end in another order than they began."""
    clock = Clock()
    numbers: list[tuple[int, int]] = []
    followers = {job.after: job for job in jobs if job.after >= 0}

    def send(job: Job) -> None:
        numbers.append((job.index, clock.now_ns))
        clock.after(service_ns + job.index, lambda: end(job))

    def end(job: Job) -> None:
        sender.ended(job)
        if job.index in followers:
            follower = followers[job.index]
            clock.after(follower.arrival_ns, lambda: sender.ready(follower))

    sender = Sender(options, jobs, clock, speed, send)
    for job in jobs:
        if job.after < 0:
            sender.ready(job)
    while clock.next_ns() >= 0:
        clock.step()
    return numbers


def test_a_barrier_ends_a_round_before_the_next_begins() -> None:
    options = SenderOptions(SECOND // 4, "poisson", 3, "random", barrier=True, pause_ns=SECOND)
    result = sent(options, chats(5, 4))
    assert [sorted(index for index, _ in result[at : at + 5]) for at in range(0, 20, 5)] == [
        list(range(at, at + 5)) for at in range(0, 20, 5)
    ]
    for turn in range(1, 4):
        ends = [time + SECOND + index for index, time in result if index // 5 == turn - 1]
        begins = [time for index, time in result if index // 5 == turn]
        assert min(begins) >= max(ends) + SECOND


def test_the_order_is_drawn_from_the_seed() -> None:
    def orders(policy: str) -> list[list[int]]:
        options = [SenderOptions(policy=policy, seed=seed) for seed in (1, 1, 2)]
        return [[index for index, _ in sent(option, chats(20, 1))] for option in options]

    first, again, other = orders("random")
    assert first == again != other
    assert sorted(first) == sorted(other) == list(range(20))
    assert orders("fifo") == [list(range(20))] * 3


_TOKENS = 24


def service_ns(outputs: int) -> int:
    """The time of one request alone: its prefill, and a decode step for each further token."""
    costs = make("pure-roofline", MODEL, PROFILE)
    decoded = (step_ns(costs, [], 1, _TOKENS + made) for made in range(1, outputs))
    return step_ns(costs, [(0, _TOKENS)], 0, 0) + sum(decoded)


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
