"""Drawn bugs: each kind of edit on a small function, the draw, planting, the hunt."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from textwrap import dedent

import pytest

from hicache.core.radix import locks, lru
from invariants.fresh import drawing, judging, triage
from invariants.fresh.edits import EDITS
from invariants.fresh.functions import LEFT_OUT, RUNTIME, functions, reason, source_of
from invariants.fresh.kinds import Kinds, Vocabulary, vocabulary
from invariants.fresh.planting import Bug, essence, planted
from invariants.fresh.syntax import commute, exchange, names_used, read_too_early
from invariants.fuzz.play import Failure
from invariants.fuzz.tapes.tape import Tape
from invariants.mutants import decisions, sources

WORDS = Vocabulary(
    fields={"Pool": {"free": "int", "available": "int", "name": "str"}, "Node": {"hits": "int"}},
    results={"make": "Node"},
    changed={"free", "hits"},
)
# By kind of edit: a function, and what some of the changes make of it.
EXAMPLES: list[tuple[str, str, tuple[str, ...]]] = [
    ("swap-statements", "f(a)\nb.x = 1\nreturn b", ("b.x = 1\nf(a)\nreturn b",)),
    (
        "drop-guard",
        "for x in a:\n    if x:\n        continue\n    g(x)\nreturn a",
        ("for x in a:\n    g(x)\nreturn a",),
    ),
    ("drop-guard", "return a and b", ("return a", "return b")),
    ("drop-guard", "return max(0, a)", ("return 0", "return a")),
    ("drop-guard", "return [x for x in a if x]", ("return [x for x in a]",)),
    ("change-condition", "return a and (not b)", ("return a or not b", "return a and b")),
    ("change-condition", "if a < b:\n    g()", ("if not a < b:\n    g()",)),
    ("change-condition", "return a is None", ("return a is not None",)),
    ("change-condition", "return any(a)", ("return all(a)",)),
    ("sibling-variable", "return pool.free", ("return pool.available",)),
    ("sibling-variable", "g(node)\nreturn other", ("g(other)\nreturn other",)),
    ("sibling-variable", "g(node, other)", ("g(other, node)",)),
    ("other-tier", "return a[Tier.DEVICE]", ("return a[Tier.HOST]",)),
    ("other-tier", "return a.pages[0]", ("return a.pages[1]",)),
    ("other-tier", "device, host = a\nreturn device", ("host, device = a\nreturn device",)),
    ("other-tier", "return leg.source", ("return leg.target",)),
    ("off-by-one", "return a < b", ("return a <= b",)),
    ("off-by-one", "return a[:b]", ("return a[:b + 1]", "return a[:b - 1]")),
    ("off-by-one", "return a + 1", ("return a", "return a + 2", "return a + 0")),
    ("off-by-one", "return range(a)", ("return range(a + 1)", "return range(a - 1)")),
    ("forget-branch", "a.x = 0\na.y = 1", ("a.x = 0", "a.y = 1")),
    ("forget-branch", "a.x, a.y = (0, 1)", ("a.x, = (0,)", "a.y, = (1,)")),
    ("forget-branch", "a.x = a.y = 0", ("a.x = 0", "a.y = 0")),
    ("forget-branch", "for x in (a, b):\n    g(x)", ("for x in (a,):\n    g(x)",)),
    ("forget-branch", "if a:\n    g()\nelse:\n    h()", ("if a:\n    g()",)),
    ("stale-value", "g(a)\nreturn pool.free", ("_before = pool.free\ng(a)\nreturn _before",)),
    (
        "stale-value",
        "g(a)\nx = 1\nreturn pool.free + x",
        ("_before = pool.free\ng(a)\nx = 1\nreturn _before + x",),
    ),
    (
        "stale-value",
        "for x in a:\n    b = pool.free\n    g(b)",
        ("b = pool.free\nfor x in a:\n    g(b)",),
    ),
    ("drop-call", "g(a)\nreturn b", ("return b",)),
    ("wrong-order", "for x in a:\n    g(x)", ("for x in list(a)[::-1]:\n    g(x)",)),
    ("wrong-order", "return min(a, key=b)", ("return max(a, key=b)", "return min(a)")),
    ("wrong-order", "return (a, -b)", ("return (a, b)", "return (-b, a)")),
    ("wrong-default", "return a.get(b, 0)", ("return a.get(b, 1)",)),
    ("wrong-default", "x = False\nreturn x", ("x = True\nreturn x",)),
    ("early-return", "g(a)\nh(b)\nreturn a", ("g(a)\nreturn a\nh(b)\nreturn a",)),
    ("early-return", "for x in a:\n    g(x)", ("for x in a:\n    g(x)\n    break",)),
    (
        "early-return",
        "while a:\n    if b:\n        break",
        ("while a:\n    if b:\n        continue",),
    ),
]
HEAD = "def f(a, b: int, node: Node, other: Node, pool: Pool, leg, flag=True):\n"


def function_of(body: str) -> ast.FunctionDef:
    (node,) = ast.parse(HEAD + "".join(f"    {line}\n" for line in body.splitlines())).body
    assert isinstance(node, ast.FunctionDef)
    return node


def made_by(kind: str, function: ast.FunctionDef) -> list[str]:
    """What each change of the kind makes of the function's body."""
    count = len(list(EDITS[kind].changes(function, Kinds(function, "", WORDS))))
    results = []
    for index in range(count):
        one = deepcopy(function)
        list(EDITS[kind].changes(one, Kinds(one, "", WORDS)))[index].apply()
        results.append(dedent("\n".join(ast.unparse(one).splitlines()[1:])))
    return results


@pytest.mark.one_in(32)
@pytest.mark.parametrize(("kind", "body", "wanted"), EXAMPLES)
def test_an_edit_makes_what_its_name_says(kind: str, body: str, wanted: tuple[str, ...]) -> None:
    function = function_of(body)
    assert {*wanted} <= {*made_by(kind, function)}
    assert dedent("\n".join(ast.unparse(function).splitlines()[1:])) == body


def test_every_kind_of_edit_has_an_example() -> None:
    assert {kind for kind, _, _ in EXAMPLES} == {*EDITS}


def test_a_wrong_default_of_a_parameter() -> None:
    function = function_of("return flag")
    (change,) = EDITS["wrong-default"].changes(function, Kinds(function, "", WORDS))
    change.apply()
    assert "flag=False" in ast.unparse(function)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("drop-guard", "if a:\n    raise CoreBug('never')"),
        ("change-condition", "assert a is None"),
        ("off-by-one", "raise ValueError(f'{a + 1}')"),
        ("swap-statements", "x = a\ny = b\nreturn x + y"),
        ("stale-value", "x = len(leg)\nreturn leg.other"),
        ("early-return", "if a:\n    g()"),
    ],
)
def test_asserts_messages_and_what_changes_nothing_are_left_alone(kind: str, body: str) -> None:
    assert not made_by(kind, function_of(body))


@pytest.mark.parametrize(
    ("one", "other", "free"),
    [
        ("a = 1", "b = 2", True),
        ("a = b", "b = 2", False),
        ("a.x = 1", "c = b.x", False),
        ("a.x = 1", "b.y = 2", True),
        ("a.all[b.id] = b", "a.all[c.id] = c", True),
        ("a.all[b.id] = b", "a.all[c.id] = a.all[b.id]", False),
        ("unknown()", "c = b.x", False),
        ("a.append(1)", "c = len(b)", True),
        ("a.append(1)", "c = len(a)", False),
        ("if a:\n    return", "b.x = 1", False),
        ("if a:\n    return", "c = 1", True),
        ("if a:\n    continue", "c = 1", False),
        ("release(a, b)", "c = b.tick", True),  # what the project's functions write is known
        ("release(a, b)", "c = b.locked", False),
        ("b.take(a)", "c = b.free", False),  # a property reads what the call changes
    ],
)
def test_statements_that_may_change_places(one: str, other: str, free: bool) -> None:
    first, second = (ast.parse(text).body[0] for text in (one, other))
    assert commute(first, second) == commute(second, first) == free


def test_a_name_that_is_read_too_early_or_set_nowhere_is_found() -> None:
    early = function_of("g(x)\nx = 1\nreturn x")
    late = function_of("for x in a:\n    y = x\nreturn [z + y for z in a]")
    either = function_of("if a:\n    x = 1\nelse:\n    x = 2\nx += 1\nreturn x")
    local = {"x", "y", "z"}
    assert read_too_early(early, local)
    assert not read_too_early(late, local)
    assert not read_too_early(either, local)
    assert read_too_early(function_of("x += 1"), local)
    assert names_used(early) == {"g", "Node", "Pool", "int"}
    assert names_used(late) == {"Node", "Pool", "int"}


def test_kinds_follow_annotations_loops_and_results() -> None:
    function = function_of(
        "for index, one in enumerate(leg):\n    g(index)\nx = make(b)\ny = x.hits\nreturn y"
    )
    kinds = Kinds(function, "", WORDS)
    assert kinds.of(ast.parse("x", mode="eval").body) == "Node"
    assert kinds.others("x", 6) == ["node", "other"]
    assert kinds.others("y", 6) == ["b", "index"]
    assert vocabulary().fields["Request"]["shared_pages"] == "int"
    assert vocabulary().results["match"] == "list[Node]"


# -- the draw


@pytest.fixture(scope="module")
def bugs() -> list[Bug]:
    return list(drawing.draw(7, 20))


@pytest.mark.one_in(8)
def test_a_seed_draws_the_same_set_and_another_seed_another(bugs: list[Bug]) -> None:
    assert [one.diff() for one in drawing.draw(7, 3)] == [one.diff() for one in bugs[:3]]
    assert [one.diff() for one in drawing.draw(8, 3)] != [one.diff() for one in bugs[:3]]
    assert [one.number for one in bugs] == list(range(1, 21))


def test_every_drawn_bug_is_another_compiles_and_changes_the_code(bugs: list[Bug]) -> None:
    assert len({(one.module, *one.diff()) for one in bugs}) == len(bugs)
    for one in bugs:
        before = sources.defined(sources.source(one.module))[one.place]
        assert essence(one.module, one.place, before) != essence(
            one.module, one.place, one.function
        )
        assert one.diff()
        assert set(one.edits) <= {*EDITS}
        assert len(one.edits) == len(one.lines) in (1, 2)
        assert one.place[1] <= one.lines[0][0] <= (before.end_lineno or 0)
    assert {len(one.edits) for one in bugs} == {1, 2}


def test_functions_that_are_left_out_exist_and_the_others_do_something() -> None:
    known = {
        f"{module}:{place[0]}"
        for module in (*sources.modules(), *RUNTIME)
        for place in sources.defined(sources.source(module))
    }
    for entry in LEFT_OUT:
        prefix = entry if ":" in entry else f"{entry}:"
        assert any(one.startswith(prefix.removesuffix("*")) for one in known), entry
    drawn = {(one.module, one.place[0]) for one in functions()}
    assert ("hicache.core.placement", "place") in drawn
    assert ("hicache.runtime.lanes", "Lane.issue") in drawn
    assert reason("hicache.core.radix.node", "Node.__repr__")
    assert not any(name.startswith("Component.") for _, name in drawn)


# -- planting and hunting


def bug_of(module: str, name: str, kind: str, index: int = 0) -> Bug:
    chosen = next(one for one in functions() if (one.module, one.place[0]) == (module, name))
    function = deepcopy(source_of(chosen))
    kinds = Kinds(function, "", vocabulary())
    change = list(EDITS[kind].changes(function, kinds))[index]
    line = change.at.lineno
    change.apply()
    ast.fix_missing_locations(function)
    return Bug(1, module, chosen.place, (kind,), ((line, line),), function)


@pytest.fixture(scope="module")
def tapes() -> list[Tape]:
    return list(triage.drawn_tapes(range(1, 4), 3))


@pytest.fixture
def counted() -> Iterator[None]:
    with sources.counted():
        yield


def test_a_bug_goes_in_and_comes_out() -> None:
    bug = bug_of("hicache.core.radix.locks", "release", "drop-call")
    before = locks.release.__code__
    with planted(bug):
        assert locks.release.__code__ is not before
    assert locks.release.__code__ is before


def test_a_wrong_default_goes_in_and_comes_out() -> None:
    bug = bug_of("hicache.core.radix.locks", "lock_required", "wrong-default")
    assert locks.lock_required.__defaults__ == (0,)
    with planted(bug):
        assert locks.lock_required.__defaults__ == (1,)
    assert locks.lock_required.__defaults__ == (0,)


@pytest.mark.one_in(32)
@pytest.mark.usefixtures("counted")
def test_a_bug_is_killed_by_a_tape_or_by_a_drawn_sequence(tapes: list[Tape]) -> None:
    bug = bug_of("hicache.core.radix.locks", "release", "drop-call")
    on_tape = judging.hunt(bug, tapes, ())
    assert on_tape.killed
    assert on_tape.on.startswith("tape ")
    drawn = judging.hunt(bug, (), range(1, 20))
    assert drawn.killed
    assert drawn.on.startswith("seed ")


@pytest.mark.one_in(32)
@pytest.mark.usefixtures("counted")
def test_a_bug_that_never_ends_is_killed_by_counting(
    tapes: list[Tape], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "MOST_STEPS", 100_000)
    bug = bug_of("hicache.core.radix.lru", "_pop", "wrong-order")  # no entry has its present rank
    assert judging.hunt(bug, tapes, ()).by == judging.ENDLESS
    assert lru._pop.__code__.co_name == "_pop"


@pytest.mark.one_in(16)
@pytest.mark.usefixtures("counted")
def test_a_bug_that_a_contract_sees_needs_no_sequence() -> None:
    bug = bug_of("hicache.core.validation", "check_chunk", "off-by-one")
    assert judging.hunt(bug, (), ()).by == "contract REFUSALS"


@pytest.mark.one_in(8)
@pytest.mark.usefixtures("counted")
def test_what_a_survivor_does(tapes: list[Tape]) -> None:
    same = bug_of("hicache.core.backup", "begin_backup", "wrong-order")
    found = triage.traces(same, tapes)
    assert (found.compared, found.differs) == (3, 0)
    assert found.reached
    other = bug_of("hicache.core.radix.locks", "release", "drop-call")
    found = triage.traces(other, tapes)
    assert found.differs >= found.beside_pages > 0


@pytest.mark.one_in(8)
@pytest.mark.usefixtures("counted")
def test_other_pages_alone_are_told_apart_from_other_decisions(tapes: list[Tape]) -> None:
    bug = bug_of("hicache.core.ledger", "Pool.__init__", "off-by-one")
    whole = deepcopy(sources.defined(sources.source(bug.module))[bug.place])
    (slices,) = [
        one
        for one in ast.walk(whole)
        if isinstance(one, ast.Subscript)
        and isinstance(one.slice, ast.Slice)
        and one.slice.step is not None
    ]
    exchange(slices, slices.value, whole)  # the first pages are taken last
    found = triage.traces(replace(bug, function=whole), tapes)
    assert found.differs
    assert not found.beside_pages


def test_a_failure_that_comes_without_the_bug_does_not_count(
    tapes: list[Tape], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judging, "_replayed", lambda tape: Failure(11, "FALSE", "", 0))
    bug = bug_of("hicache.core.radix.locks", "release", "drop-call")
    found = judging.hunt(bug, tapes, ())
    assert (found.killed, found.not_counted) == (False, 3)


@pytest.mark.one_in(8)
def test_recorded_decisions_judge_nothing(tapes: list[Tape]) -> None:
    bug = bug_of("hicache.core.backup", "begin_backup", "wrong-order")
    wrong = [decisions.noted(one, decisions="other") for one in tapes]
    assert not judging.hunt(bug, wrong, ()).killed
