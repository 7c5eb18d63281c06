"""A fixed concurrency: never more requests in flight, and never fewer while one may arrive."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.engine.sequence import RequestResult
from sim.options import WorldOptions
from tests.sim.rig import run
from tests.sim.workloads import Prompts, shared_prefixes


def _in_flight(results: tuple[RequestResult, ...], now_ns: int) -> int:
    """Requests that had arrived and had not ended just after this time."""
    return sum(one.arrival_ns <= now_ns < one.finish_ns for one in results)


def _could_arrive(workload: Prompts, results: Any, now_ns: int, speed: Fraction) -> bool:
    """Whether a request has not arrived at this time although nothing keeps it from doing so."""
    for job, one in zip(workload.jobs, results, strict=True):
        may_from = 0
        if job.after >= 0:
            may_from = results[job.after].finish_ns + int(Fraction(job.arrival_ns) / speed)
        if may_from <= now_ns < one.arrival_ns:
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
    assert [one.request for one in results] == list(range(count))
    for now_ns in {time for one in results for time in (one.arrival_ns, one.finish_ns)}:
        flying = _in_flight(results, now_ns)
        assert flying <= concurrency
        if flying < concurrency:
            assert not _could_arrive(workload, results, now_ns, speed)
    for job, one in zip(workload.jobs, results, strict=True):
        if job.after >= 0:
            ended_ns = results[job.after].finish_ns
            assert one.arrival_ns >= ended_ns + int(Fraction(job.arrival_ns) / speed)
    again = run(workload, 60, 0, options=replace(options, checks="every"))
    assert again.requests == results
