"""A cache is warm after kill -9: what was acknowledged is served, and nothing that was torn."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[3]
LIVES = 6


@pytest.mark.one_in(64)
def test_what_was_acknowledged_before_a_kill_is_served_after_it(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    program = [sys.executable, "-m", "tests.runtime.storage.lives", str(folder), "7", str(LIVES)]
    run = subprocess.run(
        program, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"{LIVES} lives, ")
    pages = int(run.stdout.split()[2])
    assert pages > 20
