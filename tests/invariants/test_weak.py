"""Weak mutation of guards: what is counted, and that it has no effect on what the core decides."""

from __future__ import annotations

import ast
import builtins
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from invariants.fuzz import play
from invariants.fuzz.ops.base import load
from invariants.fuzz.tapes import corpus
from invariants.mutants import decisions, weak
from invariants.mutants.sources import Steps

CORPUS = corpus.paths(Path(__file__).resolve().parents[1] / "corpus")
SOURCE = """
def decides(a, b, noted):
    if a and (b < 3 or noted.append(a)):
        return 1
    return 2 if b > 5 else 3

def both(one, other) -> bool:
    return one is None or other.fits
"""


class Sample:
    """Functions whose guards are weighed as those of the core are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found: dict[weak.Place, weak.Guard] = {}
        tree = ast.parse(SOURCE)
        for node in tree.body:
            assert isinstance(node, ast.FunctionDef)
            instrument = weak._Instrument("sample.py", node.name, node.returns is not None)
            node.body = [instrument.visit(one) for one in node.body]
            found.update(((node.name, at), one) for at, one in enumerate(instrument.found))
        monkeypatch.setattr(weak, "guards", lambda: found)
        self.reach = weak.Reach()
        monkeypatch.setattr(builtins, weak.NAME, self.reach.weigh, raising=False)
        space: dict[str, Any] = {}
        exec(compile(ast.fix_missing_locations(tree), "sample.py", "exec"), space)
        self.decides, self.both = space["decides"], space["both"]

    def otherwise(self, function: str) -> dict[str, int]:
        names = (name for guard in weak.guards().values() for name, _ in guard.changed)
        return {
            name.split(":", 1)[1]: self.reach.otherwise[name]
            for name in names
            if name.startswith(f"{function}:")
        }


@pytest.mark.one_in(32)
def test_conditions_and_comparisons_that_decide_are_counted_once_in_an_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample, noted = Sample(monkeypatch), []
    for event, (a, b) in enumerate([(1, 1), (1, 3), (0, 2), (0, 2)]):
        sample.reach.events = event
        for _ in range(2):
            sample.decides(a, b, noted)
    test = "a and (b < 3 or noted.append(a))"
    assert sample.otherwise("decides") == {
        f"without a:{test}": 2,  # events 2 and 3
        f"without b < 3 or noted.append(a):{test}": 1,  # event 1
        f"without b < 3:{test}": 1,  # event 0: it would call what changes something
        f"without noted.append(a):{test}": 0,
        f"<= for <:{test}": 1,
        ">= for >:b > 5": 0,
        "always:b > 5": 3,
        "never:b > 5": 0,
    }
    assert noted == [1, 1]  # only what the guard itself evaluated


def test_a_change_that_would_raise_an_error_decides_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sample = Sample(monkeypatch)
    assert sample.both(None, None) is True
    test = "one is None or other.fits"
    found = sample.otherwise("both")
    assert (found[f"without one is None:{test}"], found[f"without other.fits:{test}"]) == (1, 0)


@pytest.mark.one_in(64)
@pytest.mark.parametrize("path", CORPUS[::9], ids=lambda path: path.stem)
def test_weighing_changes_nothing(path: Path) -> None:
    tape = corpus.read(path)
    digests = []
    for reach in (None, weak.Reach()):
        record = decisions.Record(Steps())

        def follow(hand: Any, reach: Any = reach, record: Any = record) -> None:
            for one in (record, reach) if reach is not None else (record,):
                hand.observe(one)

        if reach is None:
            outcome = play.replay(tape, load(), "off", follow=follow, against=True)
        else:
            with weak.weighed(reach):
                outcome = play.replay(tape, load(), "off", follow=follow, against=True)
            assert reach.events == outcome.hand.events
            assert sum(reach.otherwise.values()) > 100
        assert outcome.failure is None
        digests.append(record.digest())
    assert digests[0] == digests[1]


def test_what_was_reviewed_is_a_guard_of_the_core_and_has_a_reason() -> None:
    names = {name for guard in weak.guards().values() for name, _ in guard.changed}
    known = weak.reviewed()
    stale = {name for name in known if not name.startswith(weak.SPECIFICATION)} - names
    assert not stale
    assert all(len(reason) > 8 for reason in known.values())


def test_a_reviewed_line_gives_its_reason(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text("# no\n\none  because\n")
    assert weak.reviewed(file) == {"one": "because"}
    file.write_text("one because")
    with pytest.raises(CallerError, match="x:1: expected a name, two spaces and a reason"):
        weak.reviewed(file)
