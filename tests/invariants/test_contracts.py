"""Promises of the core beside sequences: each holds, and a core that breaks one is found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hicache.core import admission
from hicache.core.components import swa
from hicache.core.config import Config
from hicache.core.types import Key
from invariants.mutants import contracts
from invariants.planted.base import planting
from traces.cli import main

PROMISES = {name: holds for name, _, holds in contracts.PROMISES}
BROKEN: dict[str, tuple[Any, str, Any]] = {
    "CONFIG": (Config, "__post_init__", lambda self: None),
    "KEYS": (Key, "first", lambda self, *rest: None),
    "COMPONENTS": (swa.SlidingWindow, "required", lambda self, *rest: 0),
    "REFUSALS": (admission, "want_pages", lambda state, event: []),
}


@pytest.mark.one_in(32)
@pytest.mark.parametrize("name", PROMISES)
def test_the_core_keeps_its_promises(name: str) -> None:
    assert PROMISES[name]()


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_promise_is_found(name: str) -> None:
    with planting(lambda patch: patch(*BROKEN[name])):
        try:
            kept = PROMISES[name]()
        except Exception:
            kept = False
    assert not kept


@pytest.mark.one_in(8)
def test_the_command_hunts_a_planted_bug(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "kill.json"
    line = ["mutants", "--only", "duplicate-pages-leak", "--jobs", "1", "--json", str(out)]
    assert main(line) == 0
    (row,) = json.loads(out.read_text())["planted"]
    assert row["killed"]
    assert row["by_checks"]
    assert row["rows"]
    assert "1 of 1" in capsys.readouterr().out


def test_an_unknown_name_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("no-such-bug", ""):  # an empty one is not all of them
        assert main(["mutants", "--only", name]) == 2
        assert capsys.readouterr().err.count("\n") == 1
