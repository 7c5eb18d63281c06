"""What `hicache fuzz` says of how much it looked at, and code 18 where that is too little."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz.ops import retract
from invariants.fuzz.reach import gauges, probes, rates
from traces.cli import main

from .rig import Capsys, Patch

SMALL = ("--operations", "25", "--jobs", "1", "--twice", "0")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)


def fuzz(*options: str) -> int:
    return main(["fuzz", *SMALL, *options])


def report(*options: str) -> dict[str, Any]:
    fuzz(*options, "--json", "out.json")
    found: dict[str, Any] = json.loads(Path("out.json").read_text())
    return found


def blind(monkeypatch: Patch) -> None:
    """As if no sequence ever retracted a request."""
    monkeypatch.setattr(retract, "draw", lambda hand, draws: None)
    monkeypatch.setattr(rates, "table", lambda: dict.fromkeys(KINDS, OWED))


KINDS = ("full", "full,swa", "full,mamba", "full,swa,mamba")
OWED = {"": 1000, "Retracted": 1000, "AdmitWanted": 1000, "LoadDone": 1}


def test_a_run_that_misses_a_required_state_exits_with_18_and_names_it(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    blind(monkeypatch)
    monkeypatch.setattr(probes, "unreached", lambda seen, kinds: ["Retracted", "LoadDone"])
    found = report("--operations", "120", "--sequences", "25", "--seed", "7", "--check", "off")
    assert found["exit_code"] == probes.MISSED
    assert found["missed"] == ["Retracted"]
    assert "should have reached these states, but did not: Retracted\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ("--operations", "120", "--sequences", "2"),
        ("--operations", "25", "--sequences", "25"),
        ("--operations", "120", "--sequences", "25", "--write-policy", "write_back"),
    ],
    ids=["few sequences", "short ones", "of one policy"],
)
def test_a_run_that_requires_no_state_is_clean(words: tuple[str, ...], monkeypatch: Patch) -> None:
    blind(monkeypatch)
    monkeypatch.setattr(probes, "unreached", lambda seen, kinds: ["Retracted"])
    assert fuzz("--seed", "7", "--check", "off", *words) == 0


def test_written_rates_can_be_read_again(monkeypatch: Patch) -> None:
    assert fuzz("--sequences", "4", "--rates", "made.json") == 0
    monkeypatch.setattr(rates, "PATH", Path("made.json"))
    rates.table.cache_clear()
    found = rates.table()
    rates.table.cache_clear()
    assert sum(row[""] for row in found.values()) == 4
    assert all(0 < count <= row[""] for row in found.values() for count in row.values())


def test_the_summary_shows_the_gauges(capsys: Capsys) -> None:
    found = report("--sequences", "4")
    assert "Audit of the generator" in capsys.readouterr().out
    assert found["audit"]["events_per_thousand"]["AdmitWanted"] > 0
    assert set(found["audit"]["quantiles"]) == set(gauges.QUANTITIES)
    assert sum(row[""] for row in found["reached"].values()) == 4
