"""`hicache explain`: what it tells of a failure, and whom it may be asked about."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hicache.core import insertion
from hicache.core.config import Config
from hicache.core.core import _HANDLERS
from hicache.core.ledger import Pool
from hicache.core.radix.node import Flight, Node
from hicache.core.requests.record import Request
from invariants.explain import explain
from invariants.explain.recorder import recorded
from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.tapes import corpus
from invariants.fuzz.tapes.tape import Act, Entry, Tape, write
from invariants.planted import _kill as kill
from invariants.planted.base import planted
from traces.cli import main
from traces.fuzzing.work import Work

from .rig import Capsys, fails

pytestmark = pytest.mark.usefixtures("here")

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


@pytest.fixture
def failing() -> str:
    write(Path("tape.jsonl"), FAILING)
    return "tape.jsonl"


def told(*options: str) -> dict[str, Any]:
    main(["explain", *options, "--json", "out.json"])
    found: dict[str, Any] = json.loads(Path("out.json").read_text())
    return found


# -- the story


@pytest.mark.one_in(16)
def test_the_story_leads_from_the_check_to_the_source_line(failing: str, capsys: Capsys) -> None:
    assert main(["explain", failing]) == 11
    said = capsys.readouterr().out
    assert all(len(line) <= 100 for line in said.splitlines())
    for words in (
        f"11 LOCK-BAL, with {BUG} planted",
        "exactly one holder for each running request",
        "expected 1 holders, found 2",
        "What became of node 1",
        "device full locked by backup 2",
        "flight 2 is over; its lock on",
        "flight.receipt = None",
        "in failed_backup_keeps_its_lock",
        "replay: hicache fuzz --replay tape.jsonl",
    ):
        assert words in said
    found = told(failing)
    assert found["exit_code"] == found["failure"]["code"] == 11
    assert found["look"][0]["function"] == "failed_backup_keeps_its_lock"
    assert found["look"][0]["file"] == "invariants/planted/backup.py"
    assert any(one["function"] == "_backup_done" for one in found["ran"])
    rows = found["stories"][0]["story"]
    assert found["stories"][0]["about"] == "node 1"
    assert [row["event"] for row in rows] == sorted(row["event"] for row in rows)
    assert {"entry", "event", "time", "what", "change", "lines"} == rows[0].keys()
    assert main(["explain", failing, "--plant", ""]) == 0


def test_a_clean_tape_is_reported_as_clean(failing: str, capsys: Capsys) -> None:
    assert main(["explain", failing, "--plant", ""]) == 0
    said = capsys.readouterr().out
    assert said == "tape.jsonl: 4 entries, 8 events: no failure\n"
    assert main(["explain", failing, "--plant", "", "--request", "4"]) == 0
    assert "What became of request 4" in capsys.readouterr().out


@pytest.mark.one_in(16)
def test_any_page_node_request_or_component_can_be_asked_about(failing: str) -> None:
    def about(*options: str) -> list[str]:
        return [one["about"] for one in told(failing, *options)["stories"]]

    assert about("--page", "1") == ["device full page 1", "host full page 1"]
    assert about("--page", "1", "--component", "full") == about("--page", "1")
    assert about("--node", "1", "--flight", "2") == ["node 1", "flight 2"]
    assert about("--component", "full") == ["device pool of full", "host pool of full"]
    (one,) = told(failing, "--request", "4")["stories"]
    assert any("Arrived" in row["what"] for row in one["story"])


@pytest.mark.one_in(64)
def test_a_leak_is_explained_by_the_missing_pages() -> None:
    """Found only at the end, when everything is evicted: no check named anybody."""
    with planted("duplicate-pages-leak"):
        account = found_by(lambda failure: True, range(1, 4), checks=[])
    assert account.outcome.failure is not None
    assert "pages are missing" in account.outcome.failure.text
    whom = explain.named(account)
    assert whom
    assert all(one.kind == "page" for one in whom)
    for one in whom:
        last = explain.rows(account, one)[-1]
        assert " -> free" not in last.text
    assert any(
        "is over; the page stays with it" in row.text for row in explain.rows(account, whom[0])
    )


def found_by(
    wanted: Callable[[play.Failure], bool], seeds: Any, checks: list[str] | None = None
) -> Any:
    """The first failing sequence of these seeds, recorded."""
    work, ops = Work(80), operations.load()
    for seed in seeds:
        outcome = play.generate(work.swarm(seed), ops, seed, 80, "every", checks)
        if outcome.failure is not None and wanted(outcome.failure):
            return recorded(outcome.tape, ops, checks=checks)
    raise AssertionError("no seed fails")


@pytest.mark.one_in(32)
def test_a_crash_names_the_line_that_it_came_from() -> None:
    with planted("failed-backup-freed-twice"):
        account = found_by(lambda failure: failure.code == 10, range(1, 9))
    said = explain.verdict(account.outcome.failure)
    assert "double free" in said.equation
    assert said.source_lines[0].file == "hicache/core/ledger.py"
    whom = explain.named(account)
    assert {one.kind for one in whom} == {"page"}  # all pages of the copy
    assert explain.places(account, whom)[0].source_line.function == "failed_backup_freed_twice"
    assert "refused (give_back)" in explain.rows(account, whom[0])[-1].text


def test_a_hazard_names_the_page_and_the_line_that_issued_the_copy() -> None:
    bug = "loads-do-not-wait-for-passes"
    hunted = kill.hunt(bug, range(1, 12), 80)
    assert hunted.tape is not None
    with planted(bug):
        account = recorded(hunted.tape, operations.load())
    assert account.outcome.failure is not None
    assert account.outcome.failure.code == 13
    whom = explain.named(account)
    assert "page" in [one.kind for one in whom]
    first = explain.places(account, whom)[0]
    assert first.source_line.file == "hicache/runtime/lanes.py"
    assert first.via[0].file == "invariants/planted/lanes.py"


def test_without_a_named_subject_the_last_request_is_explained() -> None:
    with planted("waiting-request-releases-a-lock"):
        account = found_by(lambda failure: failure.code == 10, range(1, 9))
    (one,) = explain.named(account)
    assert one.kind == "request"
    assert account.steps[-1].event.request == one.number
    assert explain.rows(account, one)


BUGS = (
    ("backup-reply-releases-a-lock-not-taken", "backup"),
    ("empty-slot-sentinel-is-freed", "requests"),
    ("split-upper-half-has-no-locks", "tree"),
    ("release-frees-the-shared-prefix", "admission"),
)


@pytest.mark.one_in(16)
@pytest.mark.parametrize(("bug", "file"), BUGS)
def test_the_shown_places_contain_the_planted_lines(bug: str, file: str) -> None:
    with planted(bug):
        account = found_by(lambda failure: True, range(1, 12))
    source_lines = [call.source_line for call, _ in explain.ran(account.steps[-1])]
    for place in explain.places(account, explain.named(account)):
        source_lines += [place.source_line, *place.via]
    planted_line = (f"invariants/planted/{file}.py", bug.replace("-", "_"))
    assert planted_line in [(one.file, one.function) for one in source_lines]


# -- the recorder changes nothing


def some_tapes() -> list[Tape]:
    """Of the corpus, and one that several ranks play."""
    work = Work(40)
    several = next(seed for seed in range(1000) if work.swarm(seed).ranks > 1)
    return [*[corpus.read(path) for path in corpus.paths(CORPUS)[:3]], work.drawn(several)]


@pytest.mark.one_in(32)
def test_a_replay_with_instruments_decides_the_same() -> None:
    ops = operations.load()
    before = (vars(Pool).copy(), dict(_HANDLERS), vars(insertion).copy())
    for tape in some_tapes():
        plain, account = play.replay(tape, ops), recorded(tape, ops)
        assert account.outcome.failure is None
        assert account.outcome.hand.counts == plain.hand.counts
        assert account.outcome.hand.events == plain.hand.events == len(account.steps)
        assert account.outcome.hand.probes.seen == plain.hand.probes.seen
    assert (vars(Pool).copy(), dict(_HANDLERS), vars(insertion).copy()) == before
    assert all("__setattr__" not in vars(one) for one in (Pool, Node, Request, Flight))


@pytest.mark.one_in(32)
def test_every_change_of_a_page_is_recorded() -> None:
    """Added up, the changes that were told are the ledger itself, after every tape."""
    ops = operations.load()
    for tape in some_tapes():
        account = recorded(tape, ops)
        owners: dict[tuple[int, str, int], str] = {}
        for change in (change for step in account.steps for change in step.changes):
            if change.pages and "loan" not in change.text:
                for page in change.pages:
                    owners[change.tier, change.component, page] = change.text.partition(" -> ")[2]
        view = account.outcome.hand.core.view
        for tier in (0, 1):
            for pool in view.pools(tier):
                for page in range(pool.capacity):
                    assert owners.get((tier, pool.component, page), "free") == "free"
                    assert pool.state[page] == 0
        assert owners


# -- bad input

BAD: dict[str, tuple[list[str], str]] = {
    "an unknown bug": (["--plant", "failed-backup-keeps-its-look"], f"did you mean {BUG}?"),
    "a page that no pool has": (["--page", "99"], "--page: expected a number"),
    "a node that is never made": (["--node", "77"], "--node: expected a number"),
    "a request that never comes": (["--request", "5"], "--request: expected a number"),
    "a flight that never leaves": (["--flight", "5000"], "--flight: expected a number"),
    "a component that it lacks": (["--component", "swa"], "expected one of full"),
    "a negative page": (["--page", "-1"], "--page"),
    "no folder for the trace": (["--trace", "no/trace.json"], "no directory"),
    "no folder for the document": (["--json", "no/out.json"], "no directory"),
    "two things on stdout": (["--trace", "-", "--json", "-"], "the trace goes to stdout"),
}


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("options", "words"), BAD.values(), ids=BAD.keys())
def test_a_bad_option_is_one_line(
    options: list[str], words: str, failing: str, capsys: Capsys
) -> None:
    given = options if "--trace" in options else [*options, "--trace", "trace.json"]
    assert words in fails(capsys, "explain", failing, *given)
    assert [path.name for path in Path().iterdir()] == ["tape.jsonl"]
