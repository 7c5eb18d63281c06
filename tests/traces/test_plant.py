"""What holds in every process of a command: the planted bug, and a hash seed of its own. What is
said of a failure ends with what plays it again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from invariants.fuzz import play
from invariants.fuzz.ops import base as operations
from invariants.fuzz.tapes import tape as tapes
from invariants.planted.base import load, planted
from traces.cli import main
from traces.executors import local
from traces.executors.base import JobOptions
from traces.fuzzing.work import Result, Work, hash_seed

from .rig import Capsys, Patch, fails

pytestmark = pytest.mark.usefixtures("here")

BUG = "empty-slot-sentinel-is-freed"
HUNT = ("fuzz", "--operations", "40", "--seed", "1", "--sequences", "6")


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
        assert f"    replay: hicache fuzz --replay {one['tape']}\n" in said
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


def hash_seed_of_worker(seed: int) -> Result:
    """Takes the place of a sequence; says in which process it ran."""
    return Result(os.getpid(), int(os.environ["PYTHONHASHSEED"]), hash("a") % 1000, seed)


@pytest.mark.one_in(32)
@pytest.mark.parametrize("given", ["", "77"])
def test_each_worker_has_its_own_hash_seed(given: str, monkeypatch: Patch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", given or "random")
    manner = JobOptions(str, hash_seed=int(hash_seed() or 5))
    results = local.run(hash_seed_of_worker, iter(range(5, 45)), 2, manner)
    found = list(results)
    results.close()
    assert sorted(one.busy_ns for one in found) == list(range(5, 45))
    seeds = {one.seed: one.operations for one in found}
    first = int(given or 5)
    assert set(seeds.values()) <= {first, first + 1}
    assert len(set(seeds.values())) == len(seeds)
    assert os.environ["PYTHONHASHSEED"] == (given or "random")
