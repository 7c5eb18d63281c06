"""Loads: what the options do to the times of a trace, and closed loops from sessions or prompts."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from traces.cli import parse
from traces.formats.base import Trace
from traces.replaying.load import loaded
from traces.replaying.options import ReplayOptions

from .rig import HEADER, Capsys, mooncake, native, read, records, replayed, write


def options(*given: str) -> ReplayOptions:
    _, found = parse(["replay", *given])
    assert isinstance(found, ReplayOptions)
    return found


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


def test_arrivals_replace_times_and_nothing_else() -> None:
    trace = read(HEADER, *SESSIONS)
    poisson = ["--arrivals", "poisson", "--request-rate", "10"]
    found, again = (loaded(options(*poisson).load, trace) for _ in range(2))
    other = loaded(options(*poisson, "--seed", "5").load, trace)
    assert times(found) == times(again) != times(other)
    assert times(found)[4] == (1, 70)
    assert [job.input_length for job in found.jobs] == [job.input_length for job in trace.jobs]
    assert loaded(options().load, trace) is trace
    half = loaded(options("--request-rate", "0.5").load, trace)
    assert times(half)[:4] == [(-1, 0), (-1, 1000), (-1, 6000), (-1, 6000)]


AT_ONCE = read(mooncake([1]), mooncake([2]), mooncake([3]))
APART = read(*(mooncake([place], 100, place * 1000.0) for place in range(30)))
SENT = read(HEADER | {"sender": {"max_parallel": 2}}, *SESSIONS[:2])
SLOW = "--request-rate 0.000000001"
SENDS = "which says how its client sends them; leave it out"


@pytest.mark.parametrize(
    ("trace", "given", "said"),
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
def test_a_load_that_a_trace_cannot_have_is_one_line(trace: Trace, given: str, said: str) -> None:
    with pytest.raises(CallerError, match=r"expected .*, found ") as found:
        loaded(options(*given.split()).load, trace)
    assert said in str(found.value)
    assert "\n" not in str(found.value)


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


@pytest.mark.parametrize("load", ["", "--concurrency 3", "--arrivals at-once"])
def test_a_closed_loop_never_has_two_turns_of_a_session_in_flight(
    conversations: Path, tmp_path: Path, load: str, capsys: Capsys
) -> None:
    command = [str(conversations), "--closed-loop", *load.split(), "--check", "every"]
    _, rows = records(tmp_path, *command)
    said = " ".join(capsys.readouterr().out.split())
    assert "closed loop 15 of 20 requests wait for the one before in their session" in said
    for client in range(5):
        turns = [rows[5 * turn + client] for turn in range(4)]
        for before, after in pairwise(turns):
            pause_ns = after["arrival_ns"] - before["finish_ns"]
            assert pause_ns >= 700 * 10**6
    if "concurrency" in load:
        for row in rows:
            now = row["arrival_ns"]
            assert sum(one["arrival_ns"] <= now < one["finish_ns"] for one in rows) <= 3


def test_open_loops_have_hits_by_turn_from_sessions(conversations: Path, tmp_path: Path) -> None:
    sizes = ["--mode", "hits", "--device-tokens", "64K", "--page-size", "8"]
    found = replayed(tmp_path, str(conversations), *sizes)
    assert found["turns_from"] == "session"
    assert [turn["requests"] for turn in found["turns"]] == [5] * 4


def test_replicas_keep_the_concurrency_together(conversations: Path, tmp_path: Path) -> None:
    fleet = ["--replicas", "2", "--concurrency", "3", "--check", "every"]
    _, rows = records(tmp_path, str(conversations), *fleet)
    flying = [
        sum(one["arrival_ns"] <= row["arrival_ns"] < one["finish_ns"] for one in rows)
        for row in rows
    ]
    assert max(flying) == 3
    assert {row["replica"] for row in rows} == {0, 1}


@pytest.mark.parametrize(("factor", "sessions"), [("0.5", 2), ("2", 8), ("2.5", 10)])
def test_more_users_are_whole_sessions_that_share_what_different_sessions_share(
    factor: str, sessions: int
) -> None:
    """Four sessions of two turns behind one system prompt of two pages."""
    lines = [
        native(("s", 8), (f"q{one}", 8), *more, output=(f"o{one}{turn}", 5), session=f"u{one}")
        | {"timestamp": 100 * one + 1000 * turn}
        for turn, more in ((0, []), (1, [("again", 8)]))
        for one in range(4)
    ]
    trace = read(HEADER, *lines)
    assert loaded(options("--scale-sessions", "1").load, trace).jobs[:] == trace.jobs[:]
    paged = loaded(options("--scale-sessions", factor).load, trace).paged(4)
    keys = [paged.key(job, job.input_length) for job in paged.jobs]
    pages = [
        [key.raw[at : at + key.stride] for at in range(0, len(key.raw), key.stride)] for key in keys
    ]
    by_session: dict[Any, list[list[bytes]]] = {}
    for job, found in zip(paged.jobs, pages, strict=True):
        by_session.setdefault(job.session, []).append(found)
    assert sorted(len(found) for found in by_session.values()) == [2] * sessions
    for turns in by_session.values():
        assert turns[0] == turns[1][:4], "the second turn continues the first"
    firsts = [turns[0] for turns in by_session.values()]
    assert len({tuple(one[:2]) for one in firsts}) == 1
    assert len({one[2] for one in firsts}) == sessions, "a copy has contents of its own"
