"""Where to look: the evidence against functions, the first difference, and that nothing leaks."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from hicache.core import admission, backup, placement
from hicache.core.config import Config
from hicache.core.requests import tables
from invariants import explain as package
from invariants.explain import wording
from invariants.explain.coverage import Coverage, other_events
from invariants.explain.deciders import LEAST, deciders
from invariants.explain.difference import Comparison
from invariants.explain.explain import Place
from invariants.explain.ranking import where_to_look
from invariants.explain.recorder import recorded
from invariants.fuzz import play
from invariants.fuzz.generate import weights_of
from invariants.fuzz.ops.base import load
from invariants.fuzz.swarm import draw_swarm
from invariants.fuzz.tapes.tape import Act, Entry, Tape
from invariants.planted import _kill as kill
from invariants.planted.base import patched, planted
from invariants.source_lines import SourceLine, function_of, line_of

from . import explain_score

OPS = load()
PLAIN = Tape(
    Config(2, (9,), (7,)),
    (
        Entry("arrive", {"request": 4, "tokens": [[2, 7]], "space": "", "whole": False}),
        Entry("admit", {"request": 4, "chunk": 20}, acts=(Act(3, 0), Act(3, 1))),
        Entry("wait", {"polls": 2}, 40),
    ),
)


def first_of(function: object) -> SourceLine:
    found = line_of(function)
    assert found is not None
    return found


# -- functions


def test_a_replacement_counts_as_the_function_that_it_stands_in_for() -> None:
    bug = "failed-backup-keeps-its-lock"
    (guilty,) = patched(bug)
    assert guilty.function == "land_backup"
    with planted(bug):
        stand_in = first_of(backup.land_backup)
        assert function_of(stand_in) == guilty
        assert stand_in.file == "invariants/planted/backup.py"
    assert function_of(first_of(backup.land_backup)) == guilty
    assert function_of(stand_in) is None  # of nobody, unless it is planted


def test_a_line_belongs_to_the_innermost_function() -> None:
    start = first_of(admission.arrive)
    assert function_of(start._replace(line=start.line + 2)) == start
    assert function_of(start._replace(line=1)) is None


# -- what ran


def test_coverage_says_what_ran_for_each_event_and_leaves_no_trace() -> None:
    coverage, before = Coverage(), sys.gettrace()
    with coverage.tracing():
        outcome = play.replay(PLAIN, OPS, follow=coverage.follow)
    assert sys.gettrace() is before
    ran = coverage.ran()
    assert len(ran) == outcome.hand.events
    assert ran[0].event == "Arrived"
    handler = first_of(admission.arrive)
    assert all((handler in one.lines) == (one.event == "Arrived") for one in ran)
    assert ran[0].lines[handler]
    report = first_of(admission._report_match)
    caller = function_of(ran[0].callers[report])
    assert caller == handler
    # what the checks read of the core is not what the core did
    assert not any(line.file.endswith("view.py") for one in ran for line in one.lines)


def test_words_lead_to_the_function_that_they_describe() -> None:
    functions = [first_of(one) for one in (backup.consider, backup.land_backup, admission.arrive)]
    fit = wording.fit(wording.words("A use of a path begins backups of its nodes"), functions)
    assert fit[first_of(backup.consider)] == 1.0
    assert all(0 <= value <= 1 for value in fit.values())


@pytest.mark.one_in(8)
def test_the_functions_that_decide_a_field_are_found_in_the_source() -> None:
    worth = deciders("Prefill", ["states"])
    assert worth[first_of(tables.state_slots)] == 1.0
    assert all(LEAST <= value <= 1.0 for value in worth.values())
    assert first_of(placement._to_load) in deciders("Admitted", ["loaded_pages"])


# -- the first difference


@pytest.mark.one_in(4)
def test_the_sound_core_does_not_differ() -> None:
    for seed in (*range(6), 16, 33):  # the last two have a storage
        swarm = draw_swarm(seed, weights_of(OPS))
        comparison = Comparison(swarm.config)
        play.generate(swarm, OPS, seed, 40, "off", follow=comparison.follow)
        assert comparison.first is None


@pytest.mark.one_in(64)
@pytest.mark.parametrize(
    ("bug", "words"),
    [
        ("hit-refreshes-every-window-on-the-path", "swa last use: expected"),
        ("backup-starts-one-use-early", "expected no further outcome"),
        ("split-upper-half-has-no-locks", "locked: expected True, found False"),
    ],
)
def test_the_first_difference_is_at_the_wrong_decision(bug: str, words: str) -> None:
    tape = kill.hunt(bug, range(1, 40)).tape
    assert tape is not None
    with planted(bug):
        account = recorded(tape, OPS)
    assert account.difference is not None
    assert words in account.difference.what
    at = account.difference.event
    assert at <= len(account.steps)
    assert any(one in account.ran[at - 1].lines for one in patched(bug))


# -- the ranking


def test_a_tape_that_does_not_fail_has_nothing_to_look_at() -> None:
    assert where_to_look(recorded(PLAIN, OPS), OPS) == []


@pytest.mark.one_in(4)
def test_other_sequences_have_failing_events_of_their_own() -> None:
    bug = "backup-starts-one-use-early"
    tape = kill.hunt(bug, range(1, 40)).tape
    assert tape is not None
    with planted(bug):
        others = other_events(tape, OPS)
    assert others.failing
    assert others.fine
    (guilty,) = patched(bug)
    assert all(guilty in one.lines for one in others.failing)


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    "bug", ["mamba-state-is-used-in-place", "donated-slot-stays-with-its-request"]
)
def test_the_guilty_function_is_named(bug: str) -> None:
    tape = explain_score.found(bug)
    assert tape is not None
    assert 1 <= explain_score.score(bug, tape).with_callers <= explain_score.FIRST


@pytest.mark.one_in(8)
def test_the_ranking_does_not_know_of_planted_bugs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same mistake from nowhere: no name, no file among the planted bugs, no note."""
    for path in Path(package.__file__ or "").parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert "planted" not in ast.unparse(node)
    bug = "arrival-is-not-answered"
    monkeypatch.setattr(admission, "_report_match", lambda state, request: None)
    tape = kill.hunt(bug, range(1, 4)).tape
    assert tape is not None
    places = where_to_look(recorded(tape, OPS), OPS)
    assert places
    assert all(isinstance(place, Place) and place.why for place in places)
    monkeypatch.undo()
    with planted(bug):
        known = where_to_look(recorded(tape, OPS), OPS)
        # what stands in for the function is seen as the function
        names = [function_of(place.source_line) for place in known]
    assert first_of(admission._report_match) in names[: explain_score.FIRST]
