"""Generic mutants: they go in and out, keep their names, and what the harness sees of them."""

from __future__ import annotations

import ast
import json
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pytest

from hicache.core import ledger
from hicache.core.errors import CallerError
from hicache.core.radix import matching, tree
from invariants.mutants import changes, contracts, ground, mutate, score
from invariants.mutants.ground import Ground
from invariants.mutants.steps import Endless
from traces.cli import main
from traces.mutants import generic_work

ALL = mutate.mutants()
GIVE_BACK = next(one for one in ALL if one.place[0] == "Pool.give_back" and ":negated" in one.name)
SPLIT = next(
    one for one in ALL if one.name.startswith("radix.tree:split:") and "return-none" in one.name
)


@pytest.fixture(scope="module")
def grounds() -> list[Ground]:
    return list(ground.survey(ground.drawn(range(1, 7), 40)))


def test_there_are_mutants_of_every_module_that_decides() -> None:
    modules = {one.module.removeprefix("hicache.core.") for one in ALL}
    assert len(ALL) > 2_000
    assert {
        "admission",
        "insertion",
        "ledger",
        "radix.lru",
        "placement",
        "components.swa",
    } <= modules


def test_names_are_stable_and_unique() -> None:
    names = [one.name for one in ALL]
    assert len(set(names)) == len(names)
    assert names == [one.name for one in mutate.mutants()]
    assert SPLIT.name == "radix.tree:split:return-none:return upper"
    assert mutate.find(SPLIT.name) == SPLIT
    assert all("  " not in name and "\n" not in name for name in names)
    line = Path(tree.__file__).read_text().splitlines()[SPLIT.lines[0] - 1]
    assert line.strip() == "return upper"


def test_a_name_survives_an_edit_elsewhere_and_not_one_of_its_statement() -> None:
    before = "def f(a, b):\n    if a < b:\n        g(a)\n    return a < b\n"
    after = "def f(a, b):\n    h()\n    if a < b:\n        k(b)\n    return a < 2 * b\n"
    names = [
        {
            f"{kind}:{mutate._snippet(statement)}"
            for node, statement in changes.sites(next(iter(mutate.defined(tree).values())))
            for kind, _ in changes.changes(node)
        }
        for tree in map(ast.parse, (before, after))
    ]
    assert {"negated:if a < b:", "compare-Lt-LtE:if a < b:"} <= names[0] & names[1]
    assert "deleted-call:g(a)" in names[0] - names[1]
    assert "compare-Lt-LtE:return a < b" in names[0] - names[1]


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
    function = mutate.functions(mutant.module)[mutant.place]
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
    function = next(iter(mutate.defined(ast.parse(source)).values()))
    assert not [made for node, _ in changes.sites(function) for made in changes.changes(node)]


@pytest.mark.parametrize("mutant", [GIVE_BACK, SPLIT], ids=lambda one: one.name)
def test_a_known_mutant_is_killed(mutant: mutate.Mutant, grounds: list[Ground]) -> None:
    found = score.hunt(mutant, grounds)
    assert found.killed
    assert found.differs
    assert found == score.hunt(mutant, grounds)


def test_the_unchanged_core_is_not_killed(grounds: list[Ground]) -> None:
    code = tree.split.__code__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutate, "code_of", lambda mutant, counted: code)
        found = score.hunt(SPLIT, grounds)
    assert not found.killed
    assert not found.differs
    assert found.sequences == sum(one.runs(SPLIT.module, SPLIT.lines) for one in grounds) > 1


def test_a_tape_that_does_not_run_the_line_is_not_played(grounds: list[Ground]) -> None:
    nowhere = replace(SPLIT, lines=(1, 2))
    found = score.hunt(nowhere, grounds)
    assert (found.killed, found.reached, found.sequences) == (False, False, 0)


def test_the_tapes_that_are_kept_run_every_line_and_reach_every_state(
    grounds: list[Ground],
) -> None:
    kept = ground.chosen([*grounds, *grounds], 1)
    assert 0 < len(kept) <= len(grounds)
    assert set().union(*(one.lines for one in kept)) == set().union(*(g.lines for g in grounds))
    assert set().union(*(one.states for one in kept)) == set().union(*(g.states for g in grounds))


def test_a_state_that_a_tape_only_asks_about_is_not_reached_by_it(grounds: list[Ground]) -> None:
    """Found by reading: states that were looked for and not there counted, so any tape would do."""
    one = grounds[0]
    hand = ground.play(one.tape, checked=False)[0].hand
    asked = {**hand.probes.seen, **hand.counts}
    assert one.states < set(asked)
    assert one.states == {name for name, times in asked.items() if times > 0}


def test_an_endless_mutant_is_ended_by_the_step_limit(grounds: list[Ground]) -> None:
    longest = max(grounds, key=lambda ground: ground.events)
    with mutate.counted():
        _, digest, steps = ground.play(longest.tape, checked=False)
        assert (digest, steps > longest.events) == (longest.digest, True)
        with pytest.raises(Endless, match="more than 5 steps"):
            ground.play(longest.tape, 5)
    assert ground.play(longest.tape, checked=False)[2] < steps


def test_a_hunt_ends_at_its_deadline_and_an_endless_sequence_is_a_kill(
    grounds: list[Ground],
) -> None:
    def never_ends() -> AbstractContextManager[None]:
        raise Endless("10 s")

    assert score.hunt(SPLIT, grounds, guard=never_ends).kind == score.ENDLESS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mutate, "code_of", lambda mutant, counted: tree.split.__code__)
        assert score.hunt(SPLIT, grounds, more=lambda: False).sequences == 1


def test_the_specification_finds_mutants_that_no_check_finds(grounds: list[Ground]) -> None:
    """A leaf goes with all of its components; without the window alone, all books agree."""
    start = "reclaim:_evict_copy:not-dropped:if free and ("
    one = next(mutant for mutant in ALL if mutant.name.startswith(start))
    found = score.hunt(one, grounds)
    assert found.kind == "SPEC Evicted"


@pytest.mark.parametrize("name", [name for name, _, _ in contracts.PROMISES])
def test_the_core_keeps_its_contracts(name: str) -> None:
    assert next(holds for one, _, holds in contracts.PROMISES if one == name)()


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("CONFIG", "config:Config.__post_init__:never:if value < 0:"),
        ("KEYS", "types:Key.first:return-none:"),
        ("COMPONENTS", "components.swa:SlidingWindow.required:compare-Lt-LtE:"),
        ("REFUSALS", "admission:want_pages:never:if not 0 <= event.computed"),
    ],
)
def test_a_broken_contract_is_found(kind: str, name: str) -> None:
    mutant = next(one for one in ALL if one.name.startswith(name))
    assert score.hunt(mutant, []).kind == kind


def test_the_score_leaves_out_equivalent_mutants() -> None:
    dead, seen, alive, same = (
        score.Hunt("a:f:negated:x", 11, "OWN-D", 9, 1),
        score.Hunt("a:f:negated:y", 11, "SPEC Refused", 9, 1),
        score.Hunt("b:f:negated:x", 0, "", 9, 1),
        score.Hunt("a:f:negated:z", 0, "", 9, 1),
    )
    listed = {same.name: "the same", dead.name: "wrongly", "a:g:negated:x": "gone"}
    known = [one.name for one in (dead, seen, alive, same)]
    found = score.score([dead, seen, alive, same], listed, known)
    assert (found.survivors, found.equivalent) == ((alive.name,), (same.name,))
    assert found.stale == (dead.name, "a:g:negated:x")
    assert found.total == score.Count(4, 1, 1, 1, 1)
    assert found.by_module["a"] == score.Count(3, 1, 1, 1, 0)
    assert (found.total.rate, found.total.by_checks_alone) == (2 / 3, 1 / 3)


def test_the_reviewed_list_names_mutants_that_exist_with_reasons() -> None:
    names = {one.name for one in ALL}
    assert set(score.equivalent()) <= names, set(score.equivalent()) - names
    with pytest.raises(CallerError, match="a reason"):
        score.equivalent("radix.tree:split:negated:if a:\n")


def test_a_sample_is_drawn_by_name() -> None:
    some = score.sample(ALL, 50)
    assert len(some) == 50
    assert some == score.sample(ALL, 50)
    assert set(some) <= set(ALL)
    assert some != score.sample(ALL, 50, seed=1)
    assert score.sample(ALL, 0) == ALL


def test_the_command_writes_the_matrix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generic_work, "tapes", lambda each: ground.drawn(range(1, 4), 40))
    monkeypatch.setattr(generic_work, "CORPUS", tmp_path)
    monkeypatch.setattr(generic_work, "RECORDED", tmp_path)
    out = tmp_path / "kill.json"
    line = ["mutants", "--only", SPLIT.name, "--jobs", "1", "--seconds", "5", "--json", str(out)]
    assert main(line) == 0
    found = json.loads(out.read_text())
    assert found["complete"]
    assert found["generic"]["rate"] == found["generic"]["rate_by_checks"] == 1.0
    assert found["generic"]["by_module"]["radix.tree"]["by_checks"] == 1
    assert found["mutants"][0]["killed"]
    assert found["mutants"][0]["name"] == SPLIT.name
    said = capsys.readouterr().out
    assert "100.000 %" in said
    assert [line.split()[:3] for line in said.splitlines() if "tree" in line] == [
        ["radix.tree", "1", "1"]
    ]


def test_the_command_hunts_a_planted_bug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kill.json"
    line = ["mutants", "--only", "duplicate-pages-leak", "--jobs", "1", "--json", str(out)]
    assert main(line) == 0
    (row,) = json.loads(out.read_text())["planted"]
    assert row["killed"]
    assert row["noticed_by"]
    assert row["rows"]
    assert "1 of 1" in capsys.readouterr().out


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("no-such-bug", "ledger:no-such-mutant", ""):  # an empty one is not all of them
        assert main(["mutants", "--only", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1
