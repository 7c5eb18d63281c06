"""Checks change no decision and no time, a seed does, and a replay loads nothing that is slow. That
no hash seed changes anything is in tests/golden/test_core."""

from __future__ import annotations

from pathlib import Path

from tests.traces.rig import python, replayed


def test_checks_do_not_change_a_run_and_the_seed_does(tmp_path: Path) -> None:
    options = ("--limit", "60", "--device-pages", "400", "--host-pages", "900", "--check")
    unchecked = replayed(tmp_path, *options, "off")
    checked = replayed(tmp_path, *options, "every")
    reseeded = replayed(tmp_path, *options, "off", "--seed", "9")
    assert unchecked["digest"] == checked["digest"]
    assert unchecked["latency_s"] == checked["latency_s"]
    assert reseeded["digest"] != unchecked["digest"]


def test_a_simulated_replay_imports_nothing_that_loads_slowly() -> None:
    code = (
        "import sys; from traces.cli import main; main(sys.argv[1:]); "
        "assert not {'torch', 'transformers', 'jinja2'} & {*sys.modules}"
    )
    python("-c", code, "replay", "--limit", "20", check=True)
