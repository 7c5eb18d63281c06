"""What holds in every process of a command: the planted bug, and a hash seed of its own. What is
said of a failure ends with what plays it again."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any, cast

import pytest

from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.tapes import tape as tapes
from invariants.planted.base import load, planted
from traces.cli import main
from traces.executors import local
from traces.executors.base import JobOptions
from traces.fuzzing import double_run
from traces.fuzzing.double_run import trail_of
from traces.fuzzing.report import next_steps
from traces.fuzzing.work import Result, Work
from traces.terminal import workers

from .rig import Capsys, Patch, fails

pytestmark = pytest.mark.usefixtures("here")

BUG = "empty-slot-sentinel-is-freed"
HUNT = ("fuzz", "--operations", "40", "--twice", "0", "--seed", "1", "--sequences", "6")


@pytest.mark.one_in(16)
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


@pytest.mark.one_in(16)
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


@pytest.mark.one_in(4)
def test_the_new_process_of_a_double_run_has_as_many_passes() -> None:
    work = Work(5, passes=4)
    assert double_run.differs(work.drawn(7), work) == ""


@pytest.mark.one_in(16)
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


@pytest.mark.one_in(16)
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
    said = fails(capsys, *command, "--plant", "sentinel-is-fried")
    assert f"did you mean {BUG}?" in said
    assert [path.name for path in Path().iterdir()] == ["tape.jsonl"]


@pytest.mark.parametrize(
    ("bug", "ranks"),
    [("loads-do-not-wait-for-passes", "2"), ("reduction-omits-the-last-rank", "1")],
)
def test_ranks_that_cannot_have_the_bug_are_refused(bug: str, ranks: str, capsys: Capsys) -> None:
    said = fails(capsys, *HUNT, "--plant", bug, "--ranks", ranks)
    assert f"to have {bug} at all, found {ranks}; leave the option out" in said


def test_a_canary_is_the_only_bug_of_its_run(capsys: Capsys) -> None:
    assert main([*HUNT, "--canary", "--plant", BUG]) == 2
    assert "--plant and --canary do not go together" in capsys.readouterr().err


@pytest.mark.one_in(16)
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


CHILD = """
import os, sys
for line in sys.stdin:
    if line == "end\\n":
        sys.exit("no more")
    print(os.environ["PYTHONHASHSEED"], line, end="", flush=True)
"""


def hash_seed_of_worker(seed: int) -> Result:
    """Takes the place of a sequence; says in which process it ran."""
    return Result(os.getpid(), int(os.environ["PYTHONHASHSEED"]), hash("a") % 1000, seed)


@pytest.mark.one_in(32)
@pytest.mark.parametrize("given", ["", "77"])
def test_each_worker_has_its_own_hash_seed(given: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", given or "random")
    manner = JobOptions(str, hash_seed=int(double_run.hash_seed() or 5))
    results = local.run(hash_seed_of_worker, iter(range(5, 45)), 2, manner)
    found = list(results)
    results.close()
    assert sorted(one.busy_ns for one in found) == list(range(5, 45))
    seeds = {one.seed: one.operations for one in found}
    first = int(given or 5)
    assert set(seeds.values()) <= {first, first + 1}
    assert len(set(seeds.values())) == len(seeds)
    assert os.environ["PYTHONHASHSEED"] == (given or "random")


def test_the_other_process_has_another_hash_seed_which_changes(monkeypatch: Patch) -> None:
    seeds = []

    class Nobody:
        def __init__(self, module: str, environment: dict[str, str]) -> None:
            seeds.append(environment["PYTHONHASHSEED"])

        def ask(self, line: str, timeout_s: float) -> str:
            raise workers.ChildLost("no")

        def close(self) -> None: ...

    monkeypatch.setattr(double_run, "_other", double_run._Other())
    monkeypatch.setattr(double_run, "Child", Nobody)
    last = 7 + double_run.KEPT_FOR
    for given, seed in (
        ("11", 7),
        ("11", last),
        ("4294967295", 8),
        ("random", 7),
        ("random", last),
    ):
        monkeypatch.setenv("PYTHONHASHSEED", given)
        assert "(failed: no)" in double_run.differs(Work(5).drawn(seed), Work(5))
    assert seeds == ["12", "13", "0", "1", "2"]


@pytest.mark.one_in(16)
def test_ranks_run_twice_whatever_the_percentage(monkeypatch: Patch) -> None:
    played = []
    monkeypatch.setattr(Work, "run_twice", lambda self, tape: played.append(tape.ranks))
    for percent in (0, 1):
        for seed in range(4):
            cast(Any, Work(10, ranks=2, level="off", twice=percent))(seed)
    assert played == [2] * 4


def test_a_child_answers_each_line_until_it_ends(monkeypatch: Patch) -> None:
    Path("answers.py").write_text(CHILD)
    path = os.pathsep.join([str(Path.cwd()), str(Path(workers.__file__).parents[2])])
    child = workers.Child("answers", {"PYTHONHASHSEED": "5", "PYTHONPATH": path})
    assert [child.ask(word, 60) for word in ("one", "two")] == ["5 one\n", "5 two\n"]
    with pytest.raises(workers.ChildLost, match="no more"):
        child.ask("end", 60)
    with pytest.raises(workers.ChildLost):
        child.ask("three", 60)
    child.close()
