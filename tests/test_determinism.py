"""The same command in fresh processes with different hash seeds: the same digest and figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S


def document(tmp_path: Path, hash_seed: str, *options: str) -> dict[str, object]:
    out = tmp_path / "out.json"  # the same for all: the document has the command
    subprocess.run(
        [sys.executable, "-m", "traces", "replay", "--limit", "60", *options, "--json", str(out)],
        env=dict(os.environ, PYTHONHASHSEED=hash_seed),
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
    found: dict[str, object] = json.loads(out.read_text())
    del found["wall_s"]
    return found


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
def test_two_processes_print_the_same_digest(tmp_path: Path, policy: str) -> None:
    options = ("--write-policy", policy, "--device-pages", "400", "--host-pages", "900")
    first, second = (document(tmp_path, seed, *options) for seed in ("1", "77"))
    assert first == second


def test_checks_do_not_change_a_run_and_the_seed_does(tmp_path: Path) -> None:
    options = ("--device-pages", "400", "--host-pages", "900")
    unchecked = document(tmp_path, "1", *options, "--check", "off")
    checked = document(tmp_path, "2", *options, "--check", "every")
    reseeded = document(tmp_path, "3", *options, "--check", "off", "--seed", "9")
    assert unchecked["digest"] == checked["digest"]
    assert unchecked["latency_s"] == checked["latency_s"]
    assert reseeded["digest"] != unchecked["digest"]


def test_a_simulated_replay_imports_nothing_that_loads_slowly(tmp_path: Path) -> None:
    code = (
        "import sys; from traces.cli import main; main(sys.argv[1:]); "
        "assert not {'torch', 'transformers', 'jinja2'} & {*sys.modules}"
    )
    subprocess.run(
        [sys.executable, "-c", code, "replay", "--limit", "20"],
        check=True,
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_S,
    )
