"""A part of the drawn calls of `drawing`, and mistakes that they must find."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("transformers", exc_type=ImportError, reason="needs the extra transformers")

import torch

from hicache.storage import verified
from hicache.transformers.identity.computation import Computation, Identity
from tests.patience import PATIENCE_S

from .drawing import Play, Wrong
from .test_cache import ROOT

CALLS = 500
SPOILT = 4  # a seed that spoils values early


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.mark.parametrize("seed", range(4))
def test_drawn_calls_are_those_of_the_model_as_it_is(seed: int, tmp_path: Path) -> None:
    play = Play(seed, tmp_path / "kv")
    for _ in range(CALLS):
        play.call()
    play.close()
    assert play.seen["tokens from device"] > CALLS


def test_processes_that_are_killed_leave_no_wrong_page() -> None:
    command = [sys.executable, "-m", "tests.transformers.drawing", "--calls", "240", "--each", "60"]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_S * 10
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^killed +[1-9]", done.stdout, re.MULTILINE), done.stdout


def test_values_that_are_not_checked_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "header_of", lambda key, value: bytes(verified.HEADER_BYTES))
    play = Play(SPOILT, tmp_path / "kv")
    with pytest.raises(Wrong):
        all(play.call() is None for _ in range(4 * CALLS))
    assert play.seen["blocks spoilt"]


@pytest.mark.parametrize("part", ["setup", "weights"])
def test_an_identity_that_leaves_a_part_out_is_found(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, known = Identity.now, b"" * 16

    def blind(self: Identity) -> Computation:
        found = now(self)
        first = vars(self).setdefault("first", found)
        return found._replace(**{part: known if part == "weights" else first.setup})

    monkeypatch.setattr(Identity, "now", blind)
    play = Play(0, tmp_path / "kv")
    with pytest.raises(Wrong):
        all(play.call() is None for _ in range(CALLS))
