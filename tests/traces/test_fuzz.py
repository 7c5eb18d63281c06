"""`hicache fuzz`: its runs, its files, its codes, what it must reach, and when it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hicache.core.ledger import Pool
from invariants.fuzz import sequence as tapes
from invariants.fuzz.hicache import play, probes
from invariants.fuzz.hicache.operations import OPERATIONS
from tests.planted import planted
from traces.cli import main
from traces.fuzzing.core import Work
from traces.fuzzing.results import WORST, Failure, Result, Tally

from .rig import BUG, Capsys, Patch, document

pytestmark = pytest.mark.usefixtures("here")

SMALL = ("--operations", "25", "--jobs", "1")


def fuzz(*options: str) -> int:
    return main(["fuzz", *SMALL, *options])


def leak(monkeypatch: Patch) -> None:
    """The last page of all that are given back at once leaks."""
    give_back = Pool.give_back
    monkeypatch.setattr(Pool, "give_back", lambda self, pages: give_back(self, pages[:-1]))


# -- runs


def test_a_clean_run_plays_every_sequence_and_leaves_no_folder(capsys: Capsys) -> None:
    """And names the states that were not reached."""
    found = document(Path(), "fuzz", *SMALL, "--sequences", "4", "--seed", "7")
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("hicache fuzz --seed 7 ")
    assert "failures 0" in said
    assert os.listdir() == ["out.json"]
    missing = found["not_reached"]
    assert set(missing) == {name for name in probes.NAMES if not found["counts"].get(name)}
    assert f"states reached {len(probes.NAMES) - len(missing)} of {len(probes.NAMES)}" in said


def test_a_run_is_a_function_of_its_seed_whatever_the_number_of_workers() -> None:
    def counted(seed: str, jobs: str) -> list[Any]:
        words = ["--operations", "25", "--sequences", "6", "--seed", seed, "--jobs", jobs]
        found = document(Path(), "fuzz", *words)
        return [found[key] for key in ("operations", "events", "counts", "failures")]

    one = counted("7", "1")
    assert counted("7", "2") == one
    assert counted("70", "1") != one


# -- failures


def test_a_failure_is_kept_as_tape_and_text(monkeypatch: Patch, capsys: Capsys) -> None:
    leak(monkeypatch)
    code = fuzz("--sequences", "6", "--seed", "13", "--output", "kept", "--json", "out.json")
    found = json.loads(Path("out.json").read_text())
    assert code == found["exit_code"] == 11
    said = capsys.readouterr().out
    assert f"failures {sum(one['times'] for one in found['failures'])}" in " ".join(said.split())
    kept = sorted(path.name for path in Path("kept").iterdir())
    assert len(kept) == 2 * len(found["failures"])
    for one in found["failures"]:
        text = Path(one["sequence"]).with_suffix(".txt").read_text()
        assert f"hicache fuzz --replay {one['sequence']}" in text
        assert fuzz("--replay", one["sequence"]) == one["code"]
        assert f"{one['code']} {one['kind']}" in capsys.readouterr().out
    tape = str(Path("kept").resolve() / kept[0])
    monkeypatch.undo()
    assert main(["fuzz", "--replay", tape]) == 0


def test_of_every_kind_the_first_failure_is_kept() -> None:
    def result(seed: int, code: int = 11, kind: str = "OWN-D") -> Result:
        return Result(seed, 5, 5, 5, failure=Failure(code, kind, "", 1, "x"))

    tally = Tally()
    assert tally.add(result(5), 1.5) is not None
    assert tally.add(result(6), 4.0) is None
    (group,) = tally.groups()
    assert (group.count, group.seed, group.seconds) == (2, 5, 1.5)
    assert tally.code() == 11
    for code in reversed(WORST):  # each is worse than all before
        tally.add(result(8, code, "other"))
        assert tally.code() == (code if WORST.index(code) <= WORST.index(11) else 11)


def test_a_failure_that_does_not_replay_is_a_harness_fault(monkeypatch: Patch) -> None:
    work = Work(25)
    with monkeypatch.context() as patch:
        leak(patch)
        drawn = work(0).failure
    assert drawn is not None
    found = work.shrunk(drawn)  # replayed without the bug: clean
    assert (found.code, found.kind) == (17, "REPLAY")


def test_a_sequence_without_end_is_a_failure_of_liveness(monkeypatch: Patch) -> None:
    def wait(hand: Any, args: Any) -> None:
        while True:
            pass

    waits = OPERATIONS["wait"]._replace(play=wait)
    monkeypatch.setitem(OPERATIONS, "wait", waits)
    monkeypatch.setattr("traces.fuzzing.core.LEAST_S", 0.3)
    monkeypatch.setattr("traces.fuzzing.core.PER_ENTRY_S", 0.0)
    found = Work(60)(7).failure
    assert found is not None
    assert found.code == 14
    assert "still at work" in found.text


def test_the_first_failure_ends_the_run_and_is_kept() -> None:
    hunt = ["--seed", "16", "--first", "--sequences", "1000000"]
    with planted(BUG):
        found = document(Path(), "fuzz", *SMALL, *hunt, code=11)
    (failure,) = found["failures"]
    assert (failure["times"], found["exit_code"], found["complete"]) == (1, 11, True)
    assert found["sequences"] == failure["seed"] - 16 + 1
    assert failure["seconds"] >= 0
    with planted(BUG):
        again = play.replay(tapes.read(Path(failure["sequence"])), OPERATIONS).failure
    assert again is not None
    assert (failure["event"], failure["event_text"]) == (again.event, again.event_text)
