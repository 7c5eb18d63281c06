"""`hicache mutants --fresh`: a drawn set runs through, is repeated by its seed, and is reported."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from invariants.fresh import judging
from invariants.fresh.drawing import draw
from invariants.fresh.judging import Verdict
from invariants.fresh.planting import Bug
from invariants.fresh.triage import Traces
from traces.cli import main
from traces.mutants import fresh_report, fresh_work
from traces.mutants.fresh_report import wilson
from traces.mutants.fresh_work import Job, Row

from .rig import Capsys, Patch, fails


@pytest.fixture
def quick(monkeypatch: Patch) -> None:
    """No tapes of the corpus, three drawn sequences for each bug, and one that is compared."""
    monkeypatch.setattr(judging, "seeds", lambda seed, number: iter(range(number, number + 3)))
    monkeypatch.setattr(fresh_work.stored, "corpus_tapes", lambda: iter(()))
    monkeypatch.setattr(fresh_work, "COMPARED", 1)


@pytest.fixture(scope="module")
def bugs() -> list[Bug]:
    return list(draw(1, 3))


def run(tmp_path: Path, *options: str) -> tuple[int, dict[str, Any]]:
    out = tmp_path / "fresh.json"
    code = main(["mutants", *options, "--budget", "1", "--json", str(out)])
    return code, json.loads(out.read_text())


@pytest.mark.one_in(16)
@pytest.mark.usefixtures("quick")
def test_a_set_runs_through_in_workers(tmp_path: Path, bugs: list[Bug], capsys: Capsys) -> None:
    code, found = run(tmp_path, "--fresh", "3", "--seed", "1", "--jobs", "2")
    rows, score = found["fresh"], found["fresh_score"]
    assert found["complete"]
    assert [row["name"] for row in rows] == [bug.name for bug in bugs]
    assert [row["diff"] for row in rows] == [bug.diff() for bug in bugs]
    assert score["hunted"] == score["asked"] == 3
    assert score["killed"] == sum(row["killed"] for row in rows) == sum(score["by"].values())
    assert code == (0 if score["killed"] == 3 else 17)
    assert score["rate_least"] <= score["rate"] <= score["rate_most"]
    said = capsys.readouterr().out
    assert "--seed 1" in said
    assert "95 % confidence" in said


@pytest.mark.one_in(32)
def test_one_bug_of_a_set(bugs: list[Bug], capsys: Capsys) -> None:
    assert main(["mutants", "--fresh", "3", "--seed", "1", "--only", "2", "--list"]) == 0
    assert capsys.readouterr().out == f"{bugs[1].name}  {' + '.join(bugs[1].edits)}\n"


def test_without_a_seed_every_set_is_new(capsys: Capsys) -> None:
    listed = []
    for _ in range(2):
        assert main(["mutants", "--fresh", "3", "--list"]) == 0
        listed.append(capsys.readouterr().out)
    assert listed[0] != listed[1]
    assert all(one.count("\n") == 3 for one in listed)


def test_a_survivor_is_shown_with_all_that_triage_needs(bugs: list[Bug], capsys: Capsys) -> None:
    alive = Row(bugs[0], Verdict(0, "", 9), 1.0, Traces(8, 5, 0, 0))
    dead = Row(bugs[1], Verdict(11, "OWN-D", 2, "seed 7"), 0.5)
    fresh_report.show([alive, dead], 3, 1, sys.stdout)
    said = capsys.readouterr().out
    assert f"alive: {bugs[0].name}" in said
    assert "runs in 5 of 8 sequences; decisions differ in 0, page numbers aside in 0" in said
    assert "hicache mutants --fresh 3 --seed 1 --only 1" in said
    assert all(line.rstrip() in said for line in bugs[0].diff())
    crash = Row(bugs[2], Verdict(10, "KeyError in match", 1, "tape 7"), 0.1)
    assert "Without these, 1 of 2" in " ".join(
        fresh_report.conclusions([alive, dead, crash], 0, 60)
    )
    told = " ".join(fresh_report.conclusions([alive, dead], 1, 60))
    assert "1 of 2 drawn bugs were found" in told
    assert "from 9.5 % to 90.5 %" in told
    assert "1 of the 1 that are left changed no decision" in told
    assert "1 have no result" in told
    assert fresh_report.conclusions([], 3, 60) == ["No drawn bug has a result yet."]


def test_ctrl_c_keeps_what_was_counted(
    tmp_path: Path, bugs: list[Bug], monkeypatch: Patch, capsys: Capsys
) -> None:
    def interrupted(jobs: list[Job], processes: int) -> Iterator[Row]:
        yield Row(bugs[1], Verdict(11, "OWN-D", 2, "seed 7"), 0.5)
        raise KeyboardInterrupt

    monkeypatch.setattr(fresh_work, "run", interrupted)
    code, found = run(tmp_path, "--fresh", "3", "--seed", "1")
    assert code == 130
    assert not found["complete"]
    assert (found["fresh_score"]["asked"], found["fresh_score"]["hunted"]) == (3, 1)
    assert "2 have no result" in capsys.readouterr().out


@pytest.mark.parametrize(
    "options",
    [
        ("--fresh", "3", "--only", "4"),
        ("--fresh", "3", "--only", "x"),
        ("--fresh", "3", "--kind", "planted"),
        ("--seed", "5"),
        ("--fresh", "x"),
        ("--budget", "5"),
    ],
)
def test_options_that_do_not_fit_are_one_line(options: tuple[str, ...], capsys: Capsys) -> None:
    assert options[-2] in fails(capsys, "mutants", *options)


@pytest.mark.parametrize(
    ("hits", "tries", "least", "most"),
    [
        (0, 10, 0.0, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0),
        (81, 263, 0.2553, 0.3662),  # an example of Newcombe, 1998
        (95, 100, 0.8882, 0.9785),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_wilsons(hits: int, tries: int, least: float, most: float) -> None:
    assert wilson(hits, tries) == pytest.approx((least, most), abs=5e-5)


def test_the_interval_contains_the_share_itself() -> None:
    for tries in range(1, 40):
        for hits in range(tries + 1):
            least, most = wilson(hits, tries)
            assert 0 <= least <= hits / tries <= most <= 1
    with pytest.raises(ValueError, match="0 to 3 hits"):
        wilson(4, 3)
