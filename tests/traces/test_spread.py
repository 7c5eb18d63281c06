"""A coarse clock is warned about, and `--arrivals spread` divides the time between its instants.
Sessions that begin together are spaced, unless the user says when they begin."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.cli import parse
from traces.formats.base import Jobs
from traces.replaying.load import loaded
from traces.replaying.options import ReplayOptions
from traces.reporting.outputs import time_warnings as warnings

from .rig import HEADER, jobs_of, native, read

S = 1_000_000_000


def jobs(*times_s: int, after: int = -1) -> Jobs:
    return jobs_of(*((time_s * S, 100, 10, after) for time_s in times_s))


def test_requests_of_one_instant_arrive_evenly_until_the_next() -> None:
    some = jobs(0, 0, 0, 3, 6, 6, 9)
    some.spread()
    assert some.arrivals_ns.tolist() == [0, S, 2 * S, 3 * S, 6 * S, 7 * S + S // 2, 9 * S]


def test_a_coarse_clock_is_warned_about_and_a_fine_one_is_not() -> None:
    crowded = jobs(*(3 * (number // 5) for number in range(50)))
    [warning] = warnings(crowded, Fraction(1))
    assert "50 requests arrive at 10 instants, mostly 3.0 s apart and up to 5 at once" in warning
    crowded.spread()
    assert warnings(crowded, Fraction(1)) == []
    assert warnings(jobs(*(3 * (number // 3) for number in range(50))), Fraction(1)) == []


def sessions(counts: list[int], pauses_s: list[int]) -> Jobs:
    """Sessions that all begin at 0: the first requests, then the others in turn."""
    last = list(range(len(counts)))
    found = [(0, 100, 10, -1, number) for number in last]
    for turn in range(max(counts)):
        for number, count in enumerate(counts):
            if turn < count:
                pause = pauses_s[(turn + number) % len(pauses_s)]
                found.append((pause * S, 100, 10, last[number], number))
                last[number] = len(found) - 1
    return jobs_of(*found)


@given(
    st.lists(st.integers(0, 4), min_size=2, max_size=9),
    st.lists(st.integers(0, 30), min_size=1, max_size=5),
)
def test_sessions_that_begin_together_begin_evenly_over_the_longest(
    counts: list[int], pauses_s: list[int]
) -> None:
    some, before = sessions(counts, pauses_s), sessions(counts, pauses_s)
    some.space()
    longest = max(
        sum(pauses_s[(turn + number) % len(pauses_s)] for turn in range(count))
        for number, count in enumerate(counts)
    )
    begins = some.arrivals_ns[some.afters < 0]
    assert begins.tolist() == [longest * S * n // len(counts) for n in range(len(counts))]
    follows = before.afters >= 0
    assert (some.arrivals_ns[follows] == before.arrivals_ns[follows]).all()
    assert before.begin_together
    assert some.begin_together is (longest == 0)


def test_pauses_beyond_any_trace_do_not_overflow() -> None:
    many = jobs(*[0] * 3000, 10_000_000)  # their number times the pause exceeds 64 bits
    many.spread()
    assert (np.diff(many.arrivals_ns) > 0).all()
    some = sessions([9, 9], [4 * 10**9])
    some.space()
    assert (np.diff(some.arrivals_ns[:2]) > 0).all()


TALKS = [
    native((f"s{n}", 300), output=("x", 4), session=f"{n}", timestamp=0) for n in range(12)
] + [native((f"s{n}", 300), output=("y", 4), after=n, delay=24_000) for n in range(12)]


@pytest.mark.parametrize(
    ("given", "apart_s"),
    [
        ("", 2),
        ("--arrivals spread", 2),
        ("--arrivals at-once", 0),
        ("--concurrency 99", 0),
        ("--arrivals uniform --request-rate 1", 1),
        ("--mode hits", 0),
    ],
)
def test_sessions_are_spaced_unless_the_user_says_when_they_begin(given: str, apart_s: int) -> None:
    trace = read(HEADER, *TALKS)
    _, options = parse(["replay", *given.split()])
    assert isinstance(options, ReplayOptions)
    found = loaded(options.load, trace)
    assert set(np.diff(found.jobs.arrivals_ns[:12]).tolist()) == {apart_s * S}
    assert bool(found.notes) is (given in ("", "--arrivals spread"))
    assert not trace.notes
    assert not trace.jobs.arrivals_ns[:12].any(), "the trace stays as it is"
