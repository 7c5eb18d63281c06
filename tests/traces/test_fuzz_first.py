"""`hicache fuzz --first` ends at the first failure, and a failure tells when it was found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from invariants.explain.recorder import recorded
from invariants.fuzz.ops import base as operations
from invariants.fuzz.tapes import tape as tapes
from invariants.planted.base import planted
from traces.cli import main
from traces.executors import local
from traces.executors.base import JobOptions
from traces.fuzzing.report import Tally
from traces.fuzzing.work import FoundFailure, Result

from .rig import Capsys, Patch

BUG = "donated-slot-stays-with-its-request"
HUNT = ("fuzz", "--plant", BUG, "--seed", "16", "--operations", "25", "--twice", "0", "--first")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_first_failure_ends_the_run_and_is_kept() -> None:
    out = Path("out.json")
    assert main([*HUNT, "--sequences", "1000000", "--jobs", "1", "--json", str(out)]) == 11
    found: dict[str, Any] = json.loads(out.read_text())
    (failure,) = found["failures"]
    assert (failure["times"], found["exit_code"], found["complete"]) == (1, 11, True)
    assert found["sequences"] == failure["seed"] - 16 + 1
    assert failure["seconds"] >= 0
    with planted(BUG):
        account = recorded(tapes.read(Path(failure["tape"])), operations.load())
    assert failure["event"] == account.steps[-1].number
    assert failure["event_text"].startswith(type(account.steps[-1].event).__name__)


def test_without_a_failure_every_sequence_is_played() -> None:
    clean = ["fuzz", "--seed", "7", "--operations", "10", "--first", "--jobs", "1"]
    assert main([*clean, "--sequences", "3", "--json", "out.json"]) == 0
    assert json.loads(Path("out.json").read_text())["sequences"] == 3


@pytest.mark.parametrize("other", [["--canary"], ["--replay", "tape.jsonl"]])
def test_first_beside_what_has_one_failure_only_is_refused(
    other: list[str], capsys: Capsys
) -> None:
    assert main(["fuzz", "--first", *other]) == 2
    assert f"{other[0]} takes no --first" in capsys.readouterr().err


def endless(seed: int) -> Result:
    """A sequence that never ends, except the first."""
    for _ in count() if seed else ():
        pass
    return Result(seed, 1, 1, 1)


def test_closing_ends_workers_within_a_sequence() -> None:
    def seeds() -> Iterator[int]:
        yield from range(4)

    results: Any = local.run(endless, seeds(), 2, JobOptions(str))
    assert next(results).seed == 0
    workers = list(results._workers)
    results.close()
    assert workers
    assert not any(worker.is_alive() for worker in workers)


def test_a_kind_keeps_the_time_of_its_first_failure_and_the_event_of_its_smallest() -> None:
    tally = Tally()
    for entries, seconds in ((9, 1.5), (3, 4.0)):
        tape = "line\n" * entries
        failure = FoundFailure(11, "OWN-D", "text", entries, tape, "name", event=entries)
        tally.add(Result(entries, entries, 1, 1, failure=failure), seconds)
    (kind,) = tally.sorted_kinds()
    assert (kind.count, kind.seconds, kind.smallest.event) == (2, 1.5, 3)
