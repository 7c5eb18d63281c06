"""Loads: what the options do to the times of a trace, and closed loops from sessions or prompts. A
coarse clock is warned about, `--arrivals spread` divides the time between its instants. A part of
a trace is whole sessions, as a shorter trace of the same load. Every load model keeps order, is the
same for a seed, and has the rate that it was given."""

import random
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from traces.cli import parse
from traces.formats import open_trace
from traces.formats.base import Jobs, Trace, groups, sampled
from traces.replaying.options import ReplayOptions
from traces.replaying.traffic import MODELS, loaded
from traces.reporting.warnings import time_warnings as warnings

from .rig import HEADER, Capsys, jobs_of, mooncake, native, read, records, replayed, turns_of, write


def options(*text: str) -> ReplayOptions:
    _, result = parse(["replay", *text])
    assert isinstance(result, ReplayOptions)
    return result


def times(trace: Trace) -> list[tuple[int, int]]:
    return [(job.after, job.arrival_ns // 10**6) for job in trace.jobs]


SESSIONS = (
    native(("a", 32), output=("x", 4), session="one", timestamp=0),
    native(("b", 32), output=("y", 4), session="two", timestamp=500),
    native(("a", 32), ("x", 4), ("c", 9), output=("z", 4), session="one", timestamp=3000),
    native(("d", 32), output=("v", 4), session="one", timestamp=3000),
    native(("e", 32), output=("w", 4), after=1, delay=70),
)


def test_a_closed_loop_takes_turns_from_sessions_and_pauses_from_the_times() -> None:
    """The last one names no session, so it is in that of the request it follows."""
    trace = read(HEADER, *SESSIONS)
    before = times(trace)
    closed = loaded(options("--closed-loop").load, trace)
    assert times(closed) == [(-1, 0), (-1, 500), (0, 3000), (2, 0), (1, 70)]
    assert times(trace) == before, "the trace stays as it is"
    assert times(closed)[:2] == times(trace)[:2]
    pages, other = closed.paged(4), trace.paged(4)
    assert [job.after for job in pages.jobs] == [-1, -1, 0, 2, 1]
    for job in pages.jobs:
        assert (pages.chain(job) == other.chain(job)).all()


AT_ONCE = read(mooncake([1]), mooncake([2]), mooncake([3]))
APART = read(*(mooncake([place], 100, place * 1000.0) for place in range(30)))
SENT = read(HEADER | {"sender": {"max_parallel": 2}}, *SESSIONS[:2])
SLOW = "--request-rate 0.000000001"
SENDS = "which says how its client sends them; leave it out"


@pytest.mark.parametrize(
    ("trace", "text", "message"),
    [
        (AT_ONCE, "--closed-loop", "give --concurrency"),
        (AT_ONCE, "--arrivals poisson", "give --request-rate"),
        (AT_ONCE, "--request-rate 3", "--arrivals poisson"),
        (APART, SLOW, "requests that arrive within 4,398,046,511 s"),
        (APART, f"{SLOW} --arrivals uniform", "requests that arrive within 4,398,046,511 s"),
        (SENT, "--concurrency 3", SENDS),
        (SENT, "--arrivals poisson", SENDS),
        (SENT, "--request-rate 2", SENDS),
    ],
)
def test_a_load_that_a_trace_cannot_have_is_one_line(trace: Trace, text: str, message: str) -> None:
    with pytest.raises(CallerError, match=r"expected .*, found ") as result:
        loaded(options(*text.split()).load, trace)
    assert message in str(result.value)
    assert "\n" not in str(result.value)


@pytest.fixture
def conversations(tmp_path: Path) -> Path:
    """Conversations with times and session names; none waits for another."""
    lines: list[object] = [HEADER]
    for turn in range(4):
        for client in range(5):
            history = [(f"{side}{client}.{n}", 40) for n in range(turn) for side in "qa"]
            at = {"session": f"s{client}", "timestamp": 700 * turn + 10 * client}
            prompt = [*history, (f"q{client}.{turn}", 40)]
            lines.append(native(*prompt, output=(f"a{client}.{turn}", 40), **at))
    return write(tmp_path / "talk.jsonl", *lines)


@pytest.mark.parametrize(
    "load", ["", "--concurrency 3", "--concurrency 3 --replicas 2", "--arrivals at-once"]
)
def test_a_closed_loop_never_has_two_turns_of_a_session_in_flight(
    conversations: Path, tmp_path: Path, load: str, capsys: Capsys
) -> None:
    command = [str(conversations), "--closed-loop", *load.split(), "--check", "every"]
    _, rows = records(tmp_path, *command)
    message = " ".join(capsys.readouterr().out.split())
    assert "closed loop 15 of 20 requests wait for the one before in their session" in message
    for client in range(5):
        turns = [rows[5 * turn + client] for turn in range(4)]
        for before, after in pairwise(turns):
            pause_ns = after["arrival_ns"] - before["finish_ns"]
            assert pause_ns >= 700 * 10**6
    if "concurrency" in load:
        for row in rows:
            now = row["arrival_ns"]
            assert sum(row["arrival_ns"] <= now < row["finish_ns"] for row in rows) <= 3


def test_open_loops_have_hits_by_turn_from_sessions(conversations: Path, tmp_path: Path) -> None:
    sizes = ["--mode", "hits", "--device-tokens", "64K", "--page-size", "8"]
    result = replayed(tmp_path, str(conversations), *sizes)
    assert result["turns_from"] == "session"
    assert [turn["requests"] for turn in result["turns"]] == [5] * 4


@pytest.mark.parametrize(("factor", "sessions"), [("0.5", 2), ("2", 8), ("2.5", 10)])
def test_more_users_are_whole_sessions_that_share_what_different_sessions_share(
    factor: str, sessions: int
) -> None:
    """Four sessions of two turns behind one system prompt of two pages."""
    lines = [
        native(
            ("s", 8), (f"q{index}", 8), *more, output=(f"o{index}{turn}", 5), session=f"u{index}"
        )
        | {"timestamp": 100 * index + 1000 * turn}
        for turn, more in ((0, []), (1, [("again", 8)]))
        for index in range(4)
    ]
    trace = read(HEADER, *lines)
    assert loaded(options("--scale-sessions", "1").load, trace).jobs[:] == trace.jobs[:]
    paged = loaded(options("--scale-sessions", factor).load, trace).paged(4)
    keys = [paged.key(job, job.input_length) for job in paged.jobs]
    pages = [
        [key.raw[at : at + key.stride] for at in range(0, len(key.raw), key.stride)] for key in keys
    ]
    by_session: dict[Any, list[list[bytes]]] = {}
    for job, page in zip(paged.jobs, pages, strict=True):
        by_session.setdefault(job.session, []).append(page)
    assert sorted(len(result) for result in by_session.values()) == [2] * sessions
    for turns in by_session.values():
        assert turns[0] == turns[1][:4], "the second turn continues the first"
    firsts = [turns[0] for turns in by_session.values()]
    assert len({tuple(item[:2]) for item in firsts}) == 1
    assert len({item[2] for item in firsts}) == sessions, "a copy has contents of its own"


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
    result = [(0, 100, 10, -1, number) for number in last]
    for turn in range(max(counts)):
        for number, count in enumerate(counts):
            if turn < count:
                pause = pauses_s[(turn + number) % len(pauses_s)]
                result.append((pause * S, 100, 10, last[number], number))
                last[number] = len(result) - 1
    return jobs_of(*result)


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
    ("text", "apart_s"),
    [
        ("", 2),
        ("--arrivals spread", 2),
        ("--arrivals at-once", 0),
        ("--concurrency 99", 0),
        ("--arrivals uniform --request-rate 1", 1),
        ("--mode hits", 0),
    ],
)
def test_sessions_are_spaced_unless_the_user_says_when_they_begin(text: str, apart_s: int) -> None:
    trace = read(HEADER, *TALKS)
    result = loaded(options(*text.split()).load, trace)
    assert set(np.diff(result.jobs.arrivals_ns[:12]).tolist()) == {apart_s * S}
    assert bool(result.notes) is (text in ("", "--arrivals spread"))
    assert not trace.notes
    assert not trace.jobs.arrivals_ns[:12].any(), "the trace stays as it is"


Kind = Literal["named", "waits", "prefix", "alone"]


def traffic(path: Path, draw: random.Random, kind: Kind) -> str:
    """Sessions that begin at random; turns come after pauses of 20 s, or wait for the answer."""
    turns: list[tuple[float, int, int, list[object], tuple[str, int]]] = []
    start = 0.0
    for session in range(800 if kind == "alone" else 400):
        start += draw.expovariate(0.5)
        at, history = start, [("system", 1024)]
        for turn in range(1 if kind == "alone" else draw.choice((1, 2, 3, 6))):
            history.append((f"q{session}.{turn}", draw.randrange(200, 8000)))
            answer = (f"a{session}.{turn}", draw.randrange(2, 10))
            turns.append((at, session, turn, [*history], answer))
            history.append(answer)
            at += draw.expovariate(1 / 20)
    records: list[object] = [HEADER]
    last: dict[int, tuple[int, float]] = {}
    for number, (at, session, turn, history, answer) in enumerate(sorted(turns)):
        item: dict[str, Any] = {"input": history, "output": answer, "timestamp": int(1000 * at)}
        if kind == "named":
            item["session"] = f"s{session}"
        if kind == "waits" and turn:
            before, then = last[session]
            item |= {"after": before, "delay": int(1000 * (at - then))}
            del item["timestamp"]
        last[session] = number, at
        records.append(item)
    return str(write(path, *records))


def test_a_sample_has_whole_groups_and_smaller_ones_are_in_it(tmp_path: Path) -> None:
    """Its requests have the pages and the turns of the whole trace."""
    trace = open_trace(turns_of(tmp_path, "--clients", "12", "--rounds", "3"))
    named = groups(trace)
    kept: set[int] = set(named.tolist())
    paged = trace.paged(64)
    number_of = {line: number for number, line in enumerate(trace.line_numbers)}
    for rate in (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)):
        some = sampled(trace, rate, seed=3)
        assert f"{len(some.jobs)} of {len(trace.jobs)} requests" in some.notes[-1]
        pages, chosen = some.paged(64), set()
        for job, line in zip(some.jobs, some.line_numbers, strict=True):
            same = trace.jobs[number_of[line]]
            chosen.add(int(named[same.index]))
            assert (job.input_length, job.output_length) == (same.input_length, same.output_length)
            assert pages.prompt_key(job) == paged.prompt_key(same)
            if same.after >= 0:
                assert some.line_numbers[job.after] == trace.line_numbers[same.after]
        assert len(some.jobs) == int(np.isin(named, [*chosen]).sum())
        assert chosen < kept
        kept = chosen
    assert kept
    assert sampled(trace, Fraction(1)) is trace


@pytest.mark.parametrize("kind", get_args(Kind))
def test_a_sample_is_a_shorter_trace_of_the_same_load(kind: Kind, tmp_path: Path) -> None:
    """At every time: a tenth of the whole takes about as many tokens as a tenth of the part."""
    trace = open_trace(traffic(tmp_path / "trace.jsonl", random.Random(7), kind))
    some = sampled(trace, Fraction(1, 4))
    jobs = some.jobs
    times = jobs.times_ns
    part = jobs.input_tokens / trace.jobs.input_tokens
    free = trace.jobs.afters < 0
    assert times.max() <= part * trace.jobs.arrivals_ns[free].max()
    halves = np.bincount(2 * times // (times.max() + 1), weights=jobs.input_lengths)
    assert 0.75 < halves[0] / halves[1] < 1.33
    assert (np.diff(jobs.arrivals_ns[jobs.afters < 0]) >= 0).all()
    assert (jobs.afters < np.arange(len(jobs))).all()
    firsts = jobs.sessions[jobs.sessions >= 0]
    assert (jobs.sessions[firsts] == firsts).all()


NAMES = list(MODELS)
COUNT = 4000
RECORDED = np.sort(np.random.default_rng(1).integers(0, 10**12, COUNT)) + 7


def made(name: str, seed: int, rate: float = 20.0, count: int = COUNT) -> NDArray[np.int64]:
    model = MODELS[name]
    return model.arrivals(RECORDED[:count], rate, model.cv or 0.0, np.random.default_rng(seed))


@pytest.mark.parametrize("name", NAMES)
def test_times_are_whole_in_order_and_the_same_for_the_same_seed(name: str) -> None:
    times = made(name, 3)
    assert times.dtype == np.int64
    assert len(times) == COUNT
    assert times[0] >= 0
    assert (np.diff(times) >= 0).all()
    assert (made(name, 3) == times).all()
    drawn = name in ("poisson", "gamma")
    assert (made(name, 4) != times).any() == drawn
    first = int(RECORDED[0]) if name == "recorded" else 0
    assert made(name, 3, count=1).tolist() == [first]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "at-once"])
def test_the_mean_rate_is_the_one_that_was_given(name: str) -> None:
    """Of 4,000 gaps with a standard deviation of twice their mean, the mean is within 10 % but for
    one seed in a thousand."""
    span_s = float(made(name, 5)[-1]) / 1e9
    assert span_s == pytest.approx((COUNT - 1) / 20.0, rel=0.1)


@pytest.mark.parametrize(("cv", "low", "high"), [(0.0, 0, 0), (1.0, 0.9, 1.1), (4.0, 3.2, 4.8)])
def test_gamma_has_its_coefficient_of_variation(cv: float, low: float, high: float) -> None:
    draw = np.random.default_rng(2)
    gaps = np.diff(MODELS["gamma"].arrivals(RECORDED, 20.0, cv, draw))
    assert low <= gaps.std() / gaps.mean() <= high + 1e-6


def test_a_poisson_process_has_exponential_gaps() -> None:
    """Kolmogorov and Smirnov: 1.95 / sqrt(n) is exceeded once in a thousand times."""
    gaps = np.sort(np.diff(made("poisson", 6)) / 1e9)
    reached = 1 - np.exp(-gaps * 20.0)
    apart = np.abs(reached - np.arange(1, len(gaps) + 1) / len(gaps)).max()
    assert apart < 1.95 / np.sqrt(len(gaps))


def test_a_rate_stretches_the_recorded_times_evenly() -> None:
    times = made("recorded", 0)
    expected = (RECORDED - RECORDED[0]) / (RECORDED[-1] - RECORDED[0])
    assert np.allclose(times / times[-1], expected, atol=1e-9)
    assert (made("recorded", 0, rate=0.0) == RECORDED).all()
