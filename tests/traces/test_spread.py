"""A coarse clock is warned about, and `--spread` divides the time between its instants."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.cli import main
from traces.formats._jobs import Jobs
from traces.reporting.timestamps import warnings

from .rig import mooncake, write

S = 1_000_000_000


def jobs(*times_s: int, after: int = -1) -> Jobs:
    found = Jobs()
    for time_s in times_s:
        found.add(time_s * S, 100, 10, after)
    return found


def test_requests_of_one_instant_arrive_evenly_until_the_next() -> None:
    some = jobs(0, 0, 0, 3, 6, 6, 9)
    some.spread()
    assert some.arrivals_ns.tolist() == [0, S, 2 * S, 3 * S, 6 * S, 7 * S + S // 2, 9 * S]


def test_a_long_gap_is_not_filled() -> None:
    some = jobs(0, 3, 6, 6, 1000, 1003)
    some.spread()
    assert some.arrivals_ns.tolist() == [0, 3 * S, 6 * S, 7 * S + S // 2, 1000 * S, 1003 * S]


def test_requests_that_wait_for_another_keep_their_delay() -> None:
    some = jobs(0, 3)
    some.add(5, 100, 10, after=1)
    some.add(3 * S, 100, 10)
    some.spread()
    assert some[2].arrival_ns == 5
    assert [some[0].arrival_ns, some[1].arrival_ns, some[3].arrival_ns] == [0, 3 * S, 9 * S // 2]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_the_order_and_the_first_of_each_instant_stay(times_s: list[int]) -> None:
    times_s = sorted(times_s)
    some, before = jobs(*times_s), jobs(*times_s).arrivals_ns
    some.spread()
    after = some.arrivals_ns
    assert (np.diff(after) >= 0).all()
    first = np.unique(before, return_index=True)[1]
    assert (after[first] == before[first]).all()
    assert (after >= before).all()


def test_a_coarse_clock_is_warned_about_and_a_fine_one_is_not() -> None:
    crowded = jobs(*(3 * (number // 5) for number in range(50)))
    [warning] = warnings(crowded, Fraction(1))
    assert "50 requests arrive at 10 instants, mostly 3.0 s apart and up to 5 at once" in warning
    crowded.spread()
    assert warnings(crowded, Fraction(1)) == []
    assert warnings(jobs(*(3 * (number // 3) for number in range(50))), Fraction(1)) == []


def test_a_replay_spreads_the_arrivals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [mooncake([number], timestamp=3000 * (number // 6)) for number in range(30)]
    trace, out = write(tmp_path / "trace.jsonl", *records), tmp_path / "out.json"
    ttft = {}
    for options in ([], ["--spread"]):
        assert main(["replay", str(trace), "--json", str(out), *options]) == 0
        found = json.loads(out.read_text())
        assert found["config"]["spread"] is bool(options)
        assert bool(found["warnings"]) is not bool(options)
        ttft[bool(options)] = found["latency_s"]["ttft"]["mean"]
    assert ttft[True] < ttft[False]


def test_many_requests_of_one_instant_before_a_long_pause_stay_in_order() -> None:
    """Their number times the pause exceeds 64 bits."""
    some = jobs(*[0] * 3000, 10_000_000)
    some.spread()
    assert (np.diff(some.arrivals_ns) > 0).all()
