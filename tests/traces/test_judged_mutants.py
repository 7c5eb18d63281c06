"""`hicache mutants --of`: judges hold on the unchanged code, and kill mutants beside the core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from invariants.mutants import judges as hunting
from invariants.mutants import mutate
from invariants.mutants.judges import Judge
from traces.cli import main
from traces.mutants import judged_accounts, judged_figures, judged_run, judged_work
from traces.mutants.judged_work import TARGETS
from traces.mutants.limits import TimedHunt

QUEUE = "sim.engine.sequence:RequestResult.queue_ns:arithmetic-Sub-Add:"
FEW = ("timed of talks, sizes 2", "timed of blocks, sizes 4", "hits of talks, sizes 5")


@pytest.mark.parametrize("name", [*FEW, *(one.__name__ for one in judged_figures.JUDGES)])
def test_what_a_judge_of_the_accounts_knows_holds(name: str) -> None:
    judged_accounts.named()[name.replace("_", " ")]()


@pytest.mark.parametrize("name", TARGETS)
def test_every_reviewed_mutant_exists(name: str) -> None:
    known = {one.name for one in mutate.mutants(TARGETS[name].places)}
    assert {*judged_work.reviewed(TARGETS[name])} <= known


def test_names_and_bad_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["mutants", "--of", "sim", "--list", "--only", QUEUE]) == 0
    names = capsys.readouterr().out.splitlines()
    assert names
    assert all(name.startswith(QUEUE) for name in names)
    assert main(["mutants", "--of", "sim", "--only", "core:nothing"]) == 2
    assert "hicache mutants --of sim --list has the names" in capsys.readouterr().err
    for wrong in (["--kind", "planted"], ["--shrink"], ["--record"]):
        assert main(["mutants", "--of", "accounts", *wrong]) == 2
        assert "expected without --of" in capsys.readouterr().err


def _time_of_a_token_from_admission() -> None:
    """Raises if a result has another queue than its times say."""
    named = TARGETS["sim"].judges()
    named["arrivals are random"]()


def test_a_judge_kills_a_mutant_and_a_survivor_is_told(tmp_path: Path) -> None:
    """The queue of a result is added instead of subtracted."""
    places = ("sim.engine.sequence",)
    one = next(each for each in mutate.mutants(places) if each.name.startswith(QUEUE))
    with mutate.counted(places):
        asked = Judge("theory", _time_of_a_token_from_admission)
        surveyed = list(hunting.survey([asked, Judge("blind", lambda: None)], places))
        assert surveyed[0].lines
        assert not surveyed[1].lines
        killed = hunting.hunt(one, surveyed, places)
        alive = hunting.hunt(one, surveyed[1:], places)
    assert (killed.code, killed.kind, killed.sequences) == (11, "theory", 1)
    assert (alive.killed, alive.reached) == (False, False)
    done = [TimedHunt(killed, 0.1), TimedHunt(alive, 0.2)]
    sum_ = judged_run._summed(TARGETS["sim"], done, whole=False)
    found = json.loads(json.dumps(judged_run.document(done, sum_, "sim")))
    assert found["generic"]["total"] == {
        "mutants": 2,
        "by_checks": 1,
        "by_decisions": 0,
        "equivalent": 0,
        "alive": 1,
    }
    assert [row["killed"] for row in found["mutants"]] == [True, False]
