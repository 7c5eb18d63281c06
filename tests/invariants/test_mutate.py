"""Generic mutants: they go in and out, keep their names, and what the harness sees of them."""

from __future__ import annotations

import ast
import json
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from hicache.core import ledger, matching, tree
from hicache.core.errors import CallerError
from invariants.fuzz import mutate, score
from traces.cli import main

ALL = mutate.mutants()
GIVE_BACK = next(one for one in ALL if one.place[0] == "Pool.give_back" and ":negated" in one.name)
SPLIT = next(one for one in ALL if one.name.startswith("tree:split:") and "return-none" in one.name)


def test_there_are_mutants_of_every_module_that_decides() -> None:
    modules = {one.module.removeprefix("hicache.core.") for one in ALL}
    assert len(ALL) > 2_000
    assert {"admission", "insertion", "ledger", "lru", "seating", "components.swa"} <= modules


def test_names_are_stable_and_unique() -> None:
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names)
    assert names == [one.name for one in mutate.mutants()]
    module, function, line, kind = SPLIT.name.split(":")
    assert (module, function, kind) == ("tree", "split", "return-none")
    assert "return" in Path(tree.__file__).read_text().splitlines()[int(line) - 1]
    assert mutate.find(SPLIT.name) == SPLIT


def test_a_mutant_goes_in_wherever_the_function_is_bound_and_comes_out() -> None:
    bound = {"split": tree.split, "give_back": ledger.Pool.give_back}
    before = {name: one.__code__ for name, one in bound.items()}
    with mutate.applied(SPLIT):
        assert tree.split is bound["split"]
        assert vars(matching)["split"].__code__ is not before["split"]
        assert ledger.Pool.give_back.__code__ is before["give_back"]
    with mutate.applied(GIVE_BACK):
        assert ledger.Pool.give_back.__code__ is not before["give_back"]
    _interrupted()
    assert {name: one.__code__ for name, one in bound.items()} == before


def _interrupted() -> None:
    try:
        with mutate.applied(GIVE_BACK):
            raise ZeroDivisionError
    except ZeroDivisionError:
        pass


@pytest.mark.parametrize("mutant", ALL[::97], ids=lambda one: one.name)
def test_every_mutant_compiles_to_other_code(mutant: mutate.Mutant) -> None:
    function = mutate._functions(mutant.module)[mutant.place]
    code = mutate.code_of(mutant)
    assert (
        code.co_code != function.__code__.co_code or code.co_consts != function.__code__.co_consts
    )
    assert (code.co_filename, code.co_freevars) == (
        function.__code__.co_filename,
        function.__code__.co_freevars,
    )


def test_asserts_and_messages_are_left_alone() -> None:
    source = (
        "def f(x):\n    assert x > 1, f'{x - 1}'\n    if x < 2:\n        raise CoreBug('x')\n"
        "    raise ValueError(x + 1)\n"
    )
    function = next(iter(mutate._defined(ast.parse(source)).values()))
    assert not [made for node in mutate._spots(function) for made in mutate._changes(node)]


@pytest.mark.parametrize("mutant", [GIVE_BACK, SPLIT], ids=lambda one: one.name)
def test_a_known_mutant_is_killed(mutant: mutate.Mutant) -> None:
    found = score.hunt(mutant, range(1, 9), 80)
    assert found.killed
    assert found.differs
    assert found == score.hunt(mutant, range(1, 9), 80)


def test_the_unchanged_core_is_not() -> None:
    same = mutate.Mutant(SPLIT.name, SPLIT.module, SPLIT.place, SPLIT.spot, SPLIT.choice)
    with pytest.MonkeyPatch.context() as patch:
        code = tree.split.__code__
        patch.setattr(mutate, "code_of", lambda _: code)
        found = score.hunt(same, range(1, 4), 80)
    assert not found.killed
    assert not found.differs
    assert found.sequences == 3


def test_a_hunt_ends_when_it_is_told_and_an_endless_sequence_is_a_kill() -> None:
    def never_ends() -> AbstractContextManager[None]:
        raise score.Endless("10 s")

    assert score.hunt(SPLIT, range(1, 9), 80, guard=never_ends).kind == score.ENDLESS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutate, "code_of", lambda _: tree.split.__code__)
        assert score.hunt(SPLIT, range(1, 9), 20, more=lambda: False).sequences == 1


def test_the_score_counts_what_is_not_equivalent() -> None:
    dead, alive, same = (
        score.Hunt("a:f:1:negated", 11, "OWN-D", 9, 1),
        score.Hunt("a:f:2:negated", 0, "", 9, 1),
        score.Hunt("a:f:3:negated", 0, "", 9, 1),
    )
    listed = {"a:f:3:negated": "the same", "a:f:1:negated": "wrongly"}
    found = score.score([dead, alive, same], listed)
    assert (found.killed, found.survivors, found.equivalent) == (1, (alive.name,), (same.name,))
    assert found.stale == (dead.name,)
    assert found.rate == 0.5


def test_the_reviewed_list_names_mutants_that_exist_with_reasons() -> None:
    names = {one.name for one in ALL}
    assert set(score.equivalent()) <= names
    with pytest.raises(CallerError, match="a reason"):
        score.equivalent("tree:split:1:negated\n")


def test_a_sample_is_drawn_by_name() -> None:
    some = score.sample(ALL, 50)
    assert len(some) == 50
    assert some == score.sample(ALL, 50)
    assert set(some) <= set(ALL)
    assert some != score.sample(ALL, 50, seed=1)
    assert score.sample(ALL, 0) == ALL


def test_the_command_writes_the_matrix(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "kill.json"
    line = ["mutants", "--only", SPLIT.name, "--jobs", "1", "--seconds", "5", "--json", str(out)]
    assert main(line) == 0
    found = json.loads(out.read_text())
    assert found["complete"]
    assert found["generic"]["rate"] == 1.0
    assert found["mutants"][0]["killed"]
    assert found["mutants"][0]["name"] == SPLIT.name
    assert "1, 100.000 %" in capsys.readouterr().out


def test_the_command_hunts_a_planted_bug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kill.json"
    line = ["mutants", "--only", "duplicates-leak", "--jobs", "1", "--json", str(out)]
    assert main(line) == 0
    (row,) = json.loads(out.read_text())["planted"]
    assert row["killed"]
    assert row["noticed_by"]
    assert row["rows"]
    assert "1 of 1" in capsys.readouterr().out


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--only", "no-such-bug"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
