"""A part of the drawn calls of `drawing`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")


from tests.patience import PATIENCE_S

from .drawing import Play
from .test_cache import ROOT

CALLS = 500


@pytest.mark.one_in(64)
@pytest.mark.parametrize("seed", range(4))
def test_drawn_calls_are_those_of_the_model_as_it_is(seed: int, tmp_path: Path) -> None:
    play = Play(seed, tmp_path / "kv")
    for _ in range(CALLS):
        play.call()
    play.close()
    assert play.seen["tokens from device"] > CALLS


@pytest.mark.one_in(8)
def test_processes_that_are_killed_leave_no_wrong_page() -> None:
    command = [sys.executable, "-m", "tests.transformers.drawing", "--calls", "240", "--each", "60"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S * 10
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^killed +[1-9]", done.stdout, re.MULTILINE), done.stdout
