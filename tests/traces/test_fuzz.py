"""`hicache fuzz`: its runs, its files, its codes, what it must reach, and when it ends;
every fault of a sequence on disk."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from hicache.core.ledger import Pool
from invariants.fuzz import sequence as sequences
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.player import STATES
from tests.planted import planted
from traces.cli import main
from traces.fuzzing.core import Work
from traces.fuzzing.results import WORST, Failure, Result, Tally

from .rig import BUG, Capsys, Patch, document, drawn, fails

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
    result = document(Path(), "fuzz", *SMALL, "--sequences", "4", "--seed", "7")
    message = " ".join(capsys.readouterr().out.split())
    assert message.startswith("hicache fuzz --seed 7 ")
    assert "failures 0" in message
    assert os.listdir() == ["out.json"]
    missing = result["not_reached"]
    assert set(missing) == {name for name in STATES if not result["counts"].get(name)}
    assert f"states reached {len(STATES) - len(missing)} of {len(STATES)}" in message


def test_a_run_is_a_function_of_its_seed_whatever_the_number_of_workers() -> None:
    def counted(seed: str, jobs: str) -> list[Any]:
        words = ["--operations", "25", "--sequences", "3", "--seed", seed, "--jobs", jobs]
        result = document(Path(), "fuzz", *words)
        return [result[key] for key in ("operations", "events", "counts", "failures")]

    item = counted("7", "1")
    assert counted("7", "2") == item
    assert counted("70", "1") != item


# -- failures


def test_a_failure_is_kept_as_sequence_and_text(monkeypatch: Patch, capsys: Capsys) -> None:
    leak(monkeypatch)
    code = fuzz("--sequences", "6", "--seed", "13", "--output", "kept", "--json", "out.json")
    result = json.loads(Path("out.json").read_text())
    assert code == result["exit_code"] == 11
    out = capsys.readouterr().out
    assert f"failures {sum(item['times'] for item in result['failures'])}" in " ".join(out.split())
    kept = sorted(path.name for path in Path("kept").iterdir())
    assert len(kept) == 2 * len(result["failures"])
    for value in result["failures"]:
        text = Path(value["sequence"]).with_suffix(".txt").read_text()
        assert f"hicache fuzz --replay {value['sequence']}" in text
        assert fuzz("--replay", value["sequence"]) == value["code"]
        assert f"{value['code']} {value['kind']}" in capsys.readouterr().out
    sequence = str(Path("kept").resolve() / kept[0])
    monkeypatch.undo()
    assert main(["fuzz", "--replay", sequence]) == 0


def test_the_exit_code_is_that_of_the_worst_failure() -> None:
    tally = Tally()
    for code in reversed(WORST):  # each is worse than all before
        tally.add(Result(8, 5, 5, 5, failure=Failure(code, "other", "", 1, "x")), 1.0)
        assert tally.code() == code


def test_a_failure_that_does_not_replay_is_a_harness_fault(monkeypatch: Patch) -> None:
    work = Work(25)
    with monkeypatch.context() as patch:
        leak(patch)
        drawn = work(0).failure
    assert drawn is not None
    shrunk = work.shrunk(drawn)  # replayed without the bug: clean
    assert (shrunk.code, shrunk.kind) == (17, "REPLAY")


def test_a_sequence_without_end_is_a_failure_of_liveness(monkeypatch: Patch) -> None:
    def wait(player: Any, args: Any) -> None:
        while True:
            pass

    waits = OPERATIONS["wait"]._replace(play=wait)
    monkeypatch.setitem(OPERATIONS, "wait", waits)
    monkeypatch.setattr("traces.fuzzing.core.LEAST_S", 0.3)
    monkeypatch.setattr("traces.fuzzing.core.PER_ENTRY_S", 0.0)
    failure = Work(60)(7).failure
    assert failure is not None
    assert failure.code == 14
    assert "still at work" in failure.text


def test_the_first_failure_ends_the_run_and_is_kept() -> None:
    hunt = ["--seed", "16", "--first", "--sequences", "1000000"]
    with planted(BUG):
        result = document(Path(), "fuzz", *SMALL, *hunt, code=11)
    (failure,) = result["failures"]
    assert (failure["times"], result["exit_code"], result["complete"]) == (1, 11, True)
    assert result["sequences"] == failure["seed"] - 16 + 1
    assert failure["seconds"] >= 0
    with planted(BUG):
        again = play.replay(sequences.read(Path(failure["sequence"]))).failure
    assert again is not None
    assert (failure["event"], failure["event_text"]) == (again.event, again.event_text)


SEQUENCE = sequences.dumps(drawn(7, 6))
LINES = SEQUENCE.splitlines()
HEAD = json.loads(LINES[0])
ENTRY = json.loads(LINES[1])


def sequence_with(head: dict[str, Any] | None = None, entry: dict[str, Any] | None = None) -> str:
    lines = [json.dumps({**HEAD, **(head or {})}), json.dumps({**ENTRY, **(entry or {})})]
    return "\n".join([*lines, *LINES[2:]]) + "\n"


def config(**changed: Any) -> dict[str, Any]:
    return {"config": {**HEAD["config"], **changed}}


SEQUENCES = {
    "lines behind the last": (SEQUENCE + "{}\n", "expected nothing behind the last line"),
    "cut within a line": (SEQUENCE[: len(SEQUENCE) // 2], "cut off"),
    "an entry gone": ("\n".join([*LINES[:1], *LINES[2:]]) + "\n", "cut off"),
    "a recording": ('{"hicache_recording":3}\n', "found the fields hicache_recording; name"),
    "5 MB": ('{"a":"' + "x" * (5 << 20) + '"}\n', "line 1: expected at most 4194304 char"),
    "NaN": (sequence_with({"seed": float("nan")}), "(the number NaN)"),
    "a pool of halves": (
        sequence_with(config(device_pages=[1.5])),
        "config: expected legal settings, found device_pages: expected a tuple",
    ),
    "a delay": (
        sequence_with(entry={"acts": [[10**30, 0, ""]]}),
        "line 2: acts[0]: expected [delay",
    ),
    "another version": (sequence_with({"version": 3}), "version: expected 2, found 3; record"),
    "a field of the head": (sequence_with({"executer": "replies"}), 'found "executer"'),
    "a long seed": (sequence_with({"seed": 10**4000}), "seed: expected an integer from 0 to"),
    "a policy that is gone": (sequence_with(config(write_policy="write_never")), "write_never"),
    "a component that is gone": (
        sequence_with(config(components=["full", "gone"])),
        "config: expected legal settings, found",
    ),
    "a device of 9 layers": (
        sequence_with({"executor": "device:9:1:1:1"}),
        "executor: expected replies",
    ),
    "ranks that are true": (
        sequence_with({"ranks": True}),
        "ranks: expected an integer from 1 to 8",
    ),
    "an operation": (sequence_with(entry={"op": "a" * 99999}), 'found "aaaaaaaaaa'),
    "a fault": (
        sequence_with(entry={"acts": [[1, 0, "fire"]]}),
        "line 2: expected a fault of this",
    ),
    "a word for a number": (
        sequence_with(entry={"op": "admit", "args": {"request": 0, "chunk": "many"}}),
        "line 2: admit: chunk: expected an integer",
    ),
}


@pytest.mark.parametrize(("text", "word"), SEQUENCES.values(), ids=SEQUENCES.keys())
def test_a_bad_sequence_is_one_line(text: str, word: str, capsys: Capsys) -> None:
    Path("bad.jsonl").write_text(text)
    message = fails(capsys, "fuzz", "--replay", "bad.jsonl", "--json", "out.json")
    assert word in message
    assert len(message) < 500
    assert [path.name for path in Path().iterdir()] == ["bad.jsonl"]
