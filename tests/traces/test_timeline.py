"""`hicache explain --trace`: the rules of the trace event format, and what a viewer makes of it.

`imported` reads as the Perfetto UI does: events of one time in their order, what is still open on
a thread holds what comes next, an arrow binds to the innermost slice. What it drops without a word
fails here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from hicache.core.actions import (
    Admitted,
    Backup,
    Copy,
    Load,
    Outcome,
    Prefill,
    Refused,
    Released,
    Restarted,
)
from hicache.core.config import Config
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    Event,
    Flushed,
    LoadDone,
    PrefillDone,
    Retracted,
)
from hicache.core.types import Key, Tier
from invariants.explain.recorder import Account, Step, recorded
from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes.tape import Act, Entry, Tape
from tests.planted import planted
from traces.explaining.timeline import timeline
from traces.fuzzing.work import Work

CORPUS = Path(__file__).resolve().parents[1] / "corpus"
BUG = "failed-backup-keeps-its-lock"
FAILING = Tape(
    Config(2, (9,), (7,)),
    (
        Entry("arrive", {"request": 4, "tokens": [[2, 7]], "space": "", "whole": False}),
        Entry("admit", {"request": 4, "chunk": 20}, acts=(Act(3, 0), Act(3, 1, "fail"))),
        Entry("wait", {"polls": 2}, 40, True, (Act(2, 0, "fail"),)),
        Entry("wait", {"polls": 2}, 40),
    ),
    notes={"plant": BUG},
)
NEEDED = {
    "M": {"args"},
    "X": {"ts", "dur"},
    "C": {"ts", "args"},
    "s": {"ts", "id", "cat"},
    "f": {"ts", "id", "cat", "bp"},
}
STAGES = ("waits", "admitted", "decodes")


@pytest.fixture(scope="module")
def lively() -> Account:
    """A sequence that loads, evicts and refuses, with backups that overlap."""
    ops, work = operations.load(), Work(80)
    drawn = (work.drawn(seed) for seed in range(1, 400))
    for tape in chain((corpus.read(path) for path in corpus.paths(CORPUS)), drawn):
        account = recorded(tape, ops)
        names = {type(item).__name__ for step in account.steps for item in step.outcomes}
        open_ = most = 0
        for step in account.steps:
            open_ += sum(isinstance(item, Backup) for item in step.outcomes)
            most = max(most, open_)
            open_ -= isinstance(step.event, BackupDone)
        if {"Load", "Evicted", "Refused"} <= names and most > 1:
            return account
    raise AssertionError("no tape does all of that")


@pytest.fixture(scope="module")
def failed() -> Account:
    """Cut off by a failure, while locks are held."""
    with planted(BUG):
        account = recorded(FAILING, operations.load())
    assert account.outcome.failure is not None
    return account


@pytest.fixture(params=["lively", "failed"])
def account(request: pytest.FixtureRequest) -> Account:
    found: Account = request.getfixturevalue(request.param)
    return found


def account_of(
    *events: tuple[Event, list[Outcome]], failure: play.Failure | None = None
) -> Account:
    """Of a replay that went like this."""
    steps = [
        Step(at, 0, 7, event, outcomes) for at, (event, outcomes) in enumerate(events, start=1)
    ]
    tape = Tape(Config(1, (9,), (9,)), ())
    return Account(play.Outcome(tape, failure, recorded(tape, {}).outcome.hand), steps)


# -- the format


def test_every_trace_event_has_the_fields_of_its_kind(lively: Account) -> None:
    events = written(lively)
    assert {one["ph"] for one in events} == NEEDED.keys()
    for one in events:
        assert {"ph", "pid", "tid", "name"} | NEEDED[one["ph"]] <= one.keys()
        assert isinstance(one["pid"], int)
        assert isinstance(one["tid"], int)
        if one["ph"] == "C":
            assert one["args"]
            assert all(isinstance(value, int) for value in one["args"].values())
    timed = [one for one in events if one["ph"] != "M"]
    assert [one["ts"] for one in timed] == sorted(one["ts"] for one in timed)
    named = {(one["pid"], one["tid"]) for one in events if one["name"] == "thread_name"}
    known = {one["pid"] for one in events if one["name"] == "process_name"}
    assert {one["pid"] for one in timed} <= known
    assert {(one["pid"], one["tid"]) for one in timed if one["ph"] != "C"} == named


def test_every_slice_ends_and_is_visible(account: Account) -> None:
    """A viewer draws what has no length as a mark without its name."""
    slices = imported(account).slices
    assert all(one.end >= one.start + 0.5 for one in slices)
    assert {one.args.get("open", False) for one in slices} <= {True, False}


# -- where things are


def test_row_numbers_do_not_collide_with_main_threads(lively: Account) -> None:
    """The number of a row says where it is, for viewers that do not know of sort_index."""
    events = written(lively)
    for one in events:
        if one["name"] == "thread_name":
            assert one["tid"] >= 1000
        if one["name"].endswith("_sort_index"):
            place = one["tid"] if one["name"].startswith("thread") else one["pid"]
            assert one["args"] == {"sort_index": place}
    rows = imported(lively).rows
    first = ["entries", "events", "loads", "backups"]
    assert [row for row in rows if row in first] == first == rows[:4]
    whole = [row for row in rows if "," not in row]
    for kind in ("request", "node"):
        numbers = [int(row.split()[1]) for row in whole if row.startswith(kind)]
        assert numbers == sorted(numbers) != []
    kinds = [row.split()[0] for row in rows]
    assert kinds.index("evictions") < kinds.index("request") < kinds.index("node")
    assert sorted(kinds, key=kinds.index) == kinds


def test_an_event_starts_at_its_number_and_lasts_one_unit(account: Account) -> None:
    picture = imported(account)
    assert [(one.start, one.end, one.name) for one in picture.of("events")] == [
        (step.number, step.number + 1, f"{step.number} {type(step.event).__name__}")
        for step in account.steps
    ]
    entries = picture.of("entries")
    assert [one.args["entry"] for one in entries] == list(
        dict.fromkeys(step.entry for step in account.steps)
    )
    assert [one.end for one in entries[:-1]] == [one.start for one in entries[1:]]
    for one in entries:
        assert account.steps[int(one.start) - 1].entry == one.args["entry"]
    told = [one["args"]["time"] for one in picture.counters if one["name"] == "tape"]
    assert told == [0, *(step.now for step in account.steps)]


def test_an_event_lists_its_changes_and_their_source_lines(failed: Account) -> None:
    words = [line for one in imported(failed).of("events") for line in one.args["changes"]]
    assert any(
        "node 1: device full locked by backup 2 (hicache/core/backup" in one for one in words
    )


def test_the_failure_row_comes_first_and_is_long_enough_to_read(failed: Account) -> None:
    failure = failed.outcome.failure
    assert failure is not None
    picture = imported(failed)
    assert picture.rows[0] == "failure"
    (one,) = picture.of("failure")
    assert one.name == "FAILURE 11 LOCK-BAL"
    assert one.start == len(failed.steps)
    assert one.end == max(other.end for other in picture.slices)
    assert one.end == one.start + 1
    assert one.args == {"concerns": "node 1", "text": failure.text.splitlines()}


def test_the_failure_slice_is_a_tenth_of_a_long_timeline() -> None:
    seen = [(Aborted(at), []) for at in range(41)]
    picture = imported(account_of(*seen, failure=play.Failure(13, "HAZARD", "so", 41)))
    (one,) = picture.of("failure")
    assert (one.name, one.start, one.end) == ("FAILURE 13 HAZARD", 41, 46)


# -- what is shown


def test_a_request_waits_is_admitted_and_decodes(lively: Account) -> None:
    picture = imported(lively)
    stages = [one for one in picture.slices if one.name in STAGES]
    assert {one.depth for one in stages} == {0}
    for step in lively.steps:
        begun = {(one.row, one.name) for one in stages if one.start == step.number}
        ended = {one.row for one in stages if one.end == step.number}
        for item in step.outcomes:
            row = f"request {getattr(item, 'request', '')}"
            assert not isinstance(item, Admitted) or (row, "admitted") in begun
            assert not isinstance(item, Released) or row in ended
            assert not isinstance(item, Restarted) or (row, "waits") in begun
            if isinstance(item, Refused) and item.request >= 0:
                names = {one.name for one in picture.of(row) if one.start == step.number}
                assert f"refused: {item.reason}" in names
        if isinstance(step.event, Arrived | Retracted):
            assert (f"request {step.event.request}", "waits") in begun
    passes = [item for step in lively.steps for item in step.outcomes if isinstance(item, Prefill)]
    assert sum("pass " in one.name for one in picture.slices) == len(passes)
    replies = [step.event for step in lively.steps if isinstance(step.event, PrefillDone)]
    assert sum(one.name == "decodes" for one in stages) <= sum(one.ok for one in replies)
    assert any(one.name == "decodes" for one in stages)


def test_a_transfer_lists_its_pages_and_nodes(lively: Account) -> None:
    picture = imported(lively)
    drawn = {one.name.split(":")[0].split()[-1]: one for one in picture.of("loads")}
    drawn |= {one.name.split(":")[0].split()[-1]: one for one in picture.of("backups")}
    ends = {
        step.event.flight: (step.number, step.event.ok)
        for step in lively.steps
        if isinstance(step.event, LoadDone | BackupDone)
    }
    found = 0
    for step in lively.steps:
        for item in step.outcomes:
            if isinstance(item, Load | Backup):
                one, found = drawn[str(item.flight)], found + 1
                assert (one.start, (one.end, one.args["ok"])) == (step.number, ends[item.flight])
                assert one.name.startswith("failed") != one.args["ok"]
                size = sum(len(copy.source) for copy in item.copies)
                assert one.name.endswith(f": {size} page{'s' * (size != 1)}")
                nodes = [
                    change.node
                    for change in step.changes
                    if change.text.endswith((f"ed by load {item.flight}", f" backup {item.flight}"))
                ]
                assert one.args["nodes"] == " ".join(map(str, sorted(set(nodes)))) != ""
                for name in {copy.component for copy in item.copies}:
                    some = [copy for copy in item.copies if copy.component == name]
                    sides = one.args[name].split(" -> ")
                    ends_ = ([copy.source for copy in some], [copy.target for copy in some])
                    for side, pages in zip(sides, ends_, strict=True):
                        words = [str(page) for page in np.concatenate(pages)]
                        assert side.split(" ... ")[0].split()[2:] == words[:8]
    assert found == len(drawn) > 1


def test_a_lock_slice_names_its_holder_and_lasts_until_release(account: Account) -> None:
    """Each (node, tier, component, holder) is as often there as it is locked, and from then on."""
    expected: list[tuple[Any, ...]] = []
    held: dict[Any, tuple[int, str]] = {}
    for step in account.steps:
        for change in step.changes:
            key = (change.lock, change.node, change.tier, change.component)
            if change.lock and key not in held:
                held[key] = (step.number, change.text.partition("locked by ")[2])
            elif change.lock:
                expected.append((*key[1:], *held.pop(key), step.number))
    end = max(one.end for one in imported(account).slices)
    expected += [(*key[1:], *some, end) for key, some in held.items()]
    assert bool(held) == (account.outcome.failure is not None)
    drawn = []
    for one in imported(account).slices:
        if one.row.startswith("node"):
            node = int(one.row.partition(",")[0].split()[1])
            holder, _, sides = one.name.partition(": ")
            tier, *components = sides.split()
            for name in components:
                last = one.start if one.end == one.start + 0.5 else one.end
                drawn.append((node, Tier[tier.upper()], name, one.start, holder, last))
            assert one.args.get("open", False) == (one.end == end)
    assert sorted(drawn) == sorted(expected) != []


def test_a_flush_ends_every_lock() -> None:
    """It drops the nodes with their locks, also those of a backup that is under way."""
    [path] = [one for one in corpus.paths(CORPUS) if one.stem == "d7f8d17b5f0518ca"]
    account = recorded(corpus.read(path), operations.load())
    [flush] = [step.number for step in account.steps if isinstance(step.event, Flushed)]
    locks = [one for one in imported(account).slices if one.row.startswith("node")]
    assert [one.end for one in locks if one.args.get("given up by") == "a flush"] == [flush]
    assert not [one for one in locks if one.args.get("open")]


def test_counters_show_the_used_page_states_of_each_pool(account: Account) -> None:
    counters = [one for one in imported(account).counters if one["name"] != "tape"]
    view = account.outcome.hand.core.view
    sizes = {
        f"{tier.name.lower()} {pool.component}": pool.capacity
        for tier in (Tier.DEVICE, Tier.HOST)
        for pool in view.pools(tier)
    }
    seen: dict[tuple[str, str], int] = defaultdict(int)
    for one in counters:
        assert sum(one["args"].values()) == sizes[one["name"]]
        for state, pages in one["args"].items():
            seen[one["name"], state] = max(seen[one["name"], state], pages)
    assert {name for name, _ in seen} == {name for name, size in sizes.items() if size}
    assert all(seen.values())


# -- arrows


def test_an_arrow_leads_from_each_load_to_the_pass_that_reads_it(lively: Account) -> None:
    expected = {
        (str(load), str(item.flight))
        for step in lively.steps
        for item in step.outcomes
        if isinstance(item, Prefill)
        for load in item.after
    }
    found = imported(lively).arrows
    assert expected
    assert {
        (load.name.split(":")[0].split()[-1], read.name.split()[-1]) for load, read in found
    } == expected
    assert all(load.row.startswith("loads") and "pass" in read.name for load, read in found)
    for one in written(lively):
        assert one["ph"] not in "sf" or isinstance(one["id"], int)


def _pages(*numbers: int) -> Any:
    return np.array(numbers, dtype=np.int32)


def test_an_arrow_starts_at_a_load_that_ends_before_its_pass() -> None:
    """The viewer forgets an arrow whose end it meets before its beginning."""
    copy = Copy("full", _pages(3), _pages(4))
    reads = Prefill(2, 5, 1, 2, (_pages(4, 6),), (1,), False)
    picture = imported(
        account_of(
            (Arrived(5, Key.from_tokens([1, 2], 1), 2, 1), []),
            (AdmitWanted(5, 9), [Admitted(5, 0, 1, 1), Load(1, 5, (copy,)), reads]),
            (LoadDone(1, True), []),
            (PrefillDone(2, True), [Prefill(3, 5, 2, 3, (_pages(4, 6),), (), True)]),
            (PrefillDone(3, True), []),
        )
    )
    ((load, read),) = picture.arrows
    assert (load.row, load.name, load.start, load.end) == ("loads", "load 1: 1 page", 2, 3)
    assert (read.row, read.name, read.start, read.end) == ("request 5", "pass 2", 2, 4)
    assert load.args["full"] == "host page 3 -> device page 4"
    assert [(one.name, one.start, one.end) for one in picture.of("request 5")] == [
        ("waits", 1, 2),
        ("admitted", 2, 5),
        ("pass 2", 2, 4),
        ("pass 3", 4, 5),
        ("decodes", 5, 6),
    ]


def test_a_pass_that_outlives_its_request_has_its_own_row() -> None:
    prefill = Prefill(2, 5, 0, 2, (_pages(4, 6),), (), True)
    picture = imported(
        account_of(
            (Arrived(5, Key.from_tokens([1, 2], 1), 2, 1), []),
            (AdmitWanted(5, 9), [Admitted(5, 0, 0, 2), prefill]),
            (Aborted(5), [Released(5)]),
            (PrefillDone(2, False), []),
        )
    )
    assert [(one.row, one.name, one.start, one.end, one.depth) for one in picture.slices[2:]] == [
        ("request 5", "waits", 1, 2, 0),
        ("events", "2 AdmitWanted", 2, 3, 0),
        ("request 5", "admitted", 2, 3, 0),
        ("request 5, lane 2", "failed pass 2", 2, 4, 0),
        ("events", "3 Aborted", 3, 4, 0),
        ("events", "4 PrefillDone", 4, 5, 0),
    ]


class Slice(NamedTuple):
    """As a viewer has it. depth: how many others of its row hold it."""

    row: str
    name: str
    start: float
    end: float
    args: dict[str, Any]
    depth: int


class Picture(NamedTuple):
    """rows: in the viewer's order. arrows: from slice to slice."""

    rows: list[str]
    slices: list[Slice]
    arrows: list[tuple[Slice, Slice]]
    counters: list[dict[str, Any]]

    def of(self, row: str) -> list[Slice]:
        """Those of a row and of its lanes."""
        return [one for one in self.slices if one.row.partition(",")[0] == row]


def written(account: Account) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads("".join(timeline(account)))["traceEvents"]
    return found


def imported(account: Account) -> Picture:
    """Fails where slices cut one another, or where an arrow has no beginning or no end."""
    names: dict[tuple[int, int], str] = {}
    open_: dict[tuple[int, int], list[Slice]] = defaultdict(list)
    slices: list[Slice] = []
    left: dict[int, Slice] = {}
    arrows: list[tuple[Slice, Slice]] = []
    counters = []
    for one in written(account):
        thread = (one["pid"], one["tid"])
        if one["ph"] == "M":
            if one["name"] == "thread_name":
                names[thread] = one["args"]["name"]
            continue
        stack = open_[thread]
        while stack and stack[-1].end <= one["ts"]:
            stack.pop()
        if one["ph"] == "X":
            end = one["ts"] + one["dur"]
            assert not stack or end <= stack[-1].end, "cut"
            made = Slice(names[thread], one["name"], one["ts"], end, one["args"], len(stack))
            slices.append(made)
            stack.append(made)
        elif one["ph"] == "s":
            assert one["id"] not in left
            left[one["id"]] = stack[-1]
        elif one["ph"] == "f":
            arrows.append((left.pop(one["id"]), stack[-1]))
        else:
            counters.append(one)
    assert not left
    return Picture([names[thread] for thread in sorted(names)], slices, arrows, counters)
