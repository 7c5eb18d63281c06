"""`--plant`: the same planted bug for all of a command, its workers and fresh processes; and what
is said of a failure, which always ends with what plays it again."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.tapes import tape as tapes
from invariants.planted.base import load, planted
from traces.cli import main
from traces.fuzzing.double_run import trail_of
from traces.fuzzing.report import next_steps
from traces.fuzzing.work import Work

from .rig import Capsys, Patch

BUG = "empty-slot-sentinel-is-freed"
HUNT = ("fuzz", "--operations", "40", "--twice", "0", "--seed", "1", "--sequences", "6")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_bug_is_planted_for_the_whole_run_only(jobs: str, capsys: Capsys) -> None:
    code = main([*HUNT, "--jobs", jobs, "--plant", BUG, "--json", "out.json"])
    said = capsys.readouterr().out
    assert BUG in next(line for line in said.splitlines() if line.startswith("planted"))
    found = json.loads(Path("out.json").read_text())
    assert found["settings"]["planted"] == BUG
    assert code == found["exit_code"] != 0
    for one in found["failures"]:
        assert all(f"    {line}" in said for line in next_steps(one["tape"], export=False))
        assert tapes.read(Path(one["tape"])).notes == {"plant": BUG}
        assert main(["fuzz", "--replay", one["tape"]]) == one["code"]  # the tape notes it
        said_again = capsys.readouterr().out
        assert f"with {BUG} planted" in said_again
        assert f"replay: hicache fuzz --replay {one['tape']}" in said_again
        assert main(["fuzz", "--replay", one["tape"], "--plant", ""]) == 0
        capsys.readouterr()
    if jobs == "1":
        assert main([*HUNT, "--jobs", "1"]) == 0


def test_the_printed_next_commands_run(capsys: Capsys) -> None:
    main([*HUNT, "--jobs", "1", "--plant", BUG, "--output", "a folder", "--json", "out.json"])
    first = json.loads(Path("out.json").read_text())["failures"][0]
    capsys.readouterr()
    for line in next_steps(first["tape"], export=True):
        _, command = line.split(":", 1)
        words = shlex.split(command)
        if words[1] == "shrink":
            assert words[-2:] == ["--export", "tests/regress/"]
            continue  # its own tests run it
        assert main(words[1:]) == first["code"]


def test_the_new_process_of_a_double_run_has_the_bug_too() -> None:
    """One that decides otherwise and breaks nothing that is asked here: the trails are equal."""
    work = Work(60, ("full",), "write_through", "off", plant="most-recently-used-is-evicted-first")
    for seed in range(8, 40):
        tape = work.drawn(seed)
        with planted(work.plant):
            trail = trail_of(tape)
        if trail != trail_of(tape):
            break
    else:
        raise AssertionError("no tape shows the bug")
    assert work.run_twice(tape) is None


def test_a_bug_is_hunted_with_its_required_components_and_ranks() -> None:
    bug = load("ranks-do-not-agree-on-success")
    options = ("--seed", "4", "--jobs", "1", "--plant", bug.name)
    options += ("--json", "out.json")
    assert main([*HUNT, *options]) == 15
    settings = json.loads(Path("out.json").read_text())["settings"]
    assert settings["ranks"] == bug.ranks
    main([*HUNT, *options, "--ranks", str(bug.ranks + 1)])
    assert json.loads(Path("out.json").read_text())["settings"]["ranks"] == bug.ranks + 1


WRONG = {
    "fuzz": ["fuzz", "--sequences", "1"],
    "replay": ["fuzz", "--replay", "tape.jsonl"],
    "shrink": ["shrink", "tape.jsonl", "-o", "small.jsonl"],
    "explain": ["explain", "tape.jsonl"],
}


@pytest.mark.parametrize("command", WRONG.values(), ids=WRONG.keys())
def test_an_unknown_bug_is_refused_in_one_line(command: list[str], capsys: Capsys) -> None:
    tapes.write(Path("tape.jsonl"), Work(5).drawn(7))
    assert main([*command, "--plant", "sentinel-is-fried"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    assert f"did you mean {BUG}?" in said.err
    assert [path.name for path in Path().iterdir()] == ["tape.jsonl"]


@pytest.mark.parametrize(
    ("bug", "ranks"),
    [("loads-do-not-wait-for-passes", "2"), ("reduction-omits-the-last-rank", "1")],
)
def test_ranks_that_cannot_have_the_bug_are_refused(bug: str, ranks: str, capsys: Capsys) -> None:
    assert main([*HUNT, "--plant", bug, "--ranks", ranks]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"to have {bug} at all, found {ranks}; leave the option out" in said


def test_a_canary_is_the_only_bug_of_its_run(capsys: Capsys) -> None:
    assert main([*HUNT, "--canary", "--plant", BUG]) == 2
    assert "--plant and --canary do not go together" in capsys.readouterr().err


def test_every_failure_ends_with_its_replay_command() -> None:
    """A crash, a check, and the end of a run, drawn and replayed."""
    ops = operations.load()
    kinds = set()
    for bug, checks in (
        ("failed-backup-freed-twice", None),
        ("chunk-insertions-count-no-use", None),
        ("donated-slot-stays-with-its-request", []),
    ):
        work = Work(80, plant=bug)
        with planted(bug):
            for seed in range(3, 15):
                command = work.command(seed)
                found = play.generate(work.swarm(seed), ops, seed, 80, "every", checks, command)
                if found.failure is not None:
                    break
            assert found.failure is not None
            kinds.add(found.failure.code)
            assert found.failure.text.endswith(f"\nreplay: {command}")
            again = play.replay(found.tape, ops, name="t.jsonl", checks=checks).failure
            assert again is not None
            assert again.text.endswith("\nreplay: hicache fuzz --replay t.jsonl")
        assert f"--seed {seed} --sequences 1 --operations 80 --plant {bug}" in command
    assert kinds >= {10, 11}
