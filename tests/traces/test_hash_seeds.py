"""Orders that come from hashing: processes have their own hash seeds, and runs are compared."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, cast

import pytest

from invariants.base import NONDETERMINISM
from traces.cli import main
from traces.executors import local
from traces.executors.base import JobOptions
from traces.fuzzing import double_run
from traces.fuzzing.work import Result, Work
from traces.mutants import planted_work
from traces.terminal import workers

from .rig import Capsys, Patch

BUG = "victims-follow-a-set"
CHILD = """
import os, sys
for line in sys.stdin:
    if line == "end\\n":
        sys.exit("no more")
    print(os.environ["PYTHONHASHSEED"], line, end="", flush=True)
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def hash_seed_of_worker(seed: int) -> Result:
    """Takes the place of a sequence; says in which process it ran."""
    return Result(os.getpid(), int(os.environ["PYTHONHASHSEED"]), hash("a") % 1000, seed)


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


def test_an_order_that_comes_from_hashing_is_found_and_repeated(
    capsys: Capsys, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "3")
    row = planted_work.work(planted_work.BugJob(BUG, 20_000, 120))
    assert (row.code, row.check) == (NONDETERMINISM, "DETERMINISM")
    again = f"--operations 120 --plant {BUG} --twice 100"
    command = f"fuzz --seed {row.seed} --sequences 1 {again} --jobs 1 --json out.json"
    assert main(command.split()) == NONDETERMINISM
    assert f"planted    {BUG}" in " ".join(capsys.readouterr().out.split(" " * 7))
    found = json.loads(Path("out.json").read_text())["failures"][0]
    assert found["hash_seed"] == 3
    lines = found["text"].splitlines()
    there = 4 + row.seed // double_run.KEPT_FOR  # another process after each KEPT_FOR seeds
    assert f"    PYTHONHASHSEED is 3 here, and {there} there" in lines
    assert (
        lines[-1]
        == f"replay: PYTHONHASHSEED=3 hicache fuzz --seed {row.seed} --sequences 1 {again}"
    )


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
