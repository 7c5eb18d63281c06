"""`hicache prove`: its table, its verdict and its tapes, and what it says to bad input."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.traces.test_json_docs import compare
from traces.cli import main

WRONG = "window-is-a-page-short"


def prove(folder: Path, *options: str, code: int = 0) -> dict[str, Any]:
    out = folder / "out.json"
    words = ["prove", *options, "--jobs", "1", "-o", str(folder / "found"), "--json", str(out)]
    assert main(words) == code
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["exit_code"] == code
    return found


def test_families_are_proved_and_a_wrong_definition_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clean = prove(tmp_path, "--family", "llama,gemma3", "--requests", "5", "--faults")
    assert [one["family"] for one in clean["families"]] == ["llama", "gemma3"]
    assert all(one["requests"] >= 5 and one["bounds"] < 10 for one in clean["families"])
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"All [\d,]+ passes of 2 families gave the logits of a run without a", said)
    planted = ("--plant", WRONG, "--check", "off", "--requests", "90")
    wrong = prove(tmp_path, "--family", "gemma3", *planted, code=12)
    compare("hicache prove", [clean, wrong])
    assert {one["kind"] for one in wrong["failures"]} == {"LOGITS gemma3"}
    said = capsys.readouterr().out
    tape = wrong["failures"][0]["tape"]
    for line in (f"hicache fuzz --replay {tape}", "hicache shrink", f"hicache explain {tape}"):
        assert line in said
    replay = ["fuzz", "--replay", tape, "--check", "off", "--against", "none"]
    assert main(replay) == 12
    said = capsys.readouterr().out
    assert f"12 LOGITS gemma3, with {WRONG} planted" in said
    assert re.search(r"request \d+, (prefill \d+|decode) ", said)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--family", "alpaca"), "expected a list of deepseek-v3, .*qwen3-next, found 'alpaca'"),
        (("--family", "mamba2", "--attention", "sdpa"), "attention of mamba2: expected one of eag"),
        (("--plant", "nothing"), "planted bug: .*nothing|expected .*nothing"),
        (("--requests", "0"), "--requests: .*found"),
        (("--seconds", "5", "--requests", "5"), "--seconds: expected no --requests beside it"),
    ],
)
def test_bad_input_is_one_line(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prove", *options]) == 2
    said = capsys.readouterr()
    assert not said.out
    assert len(said.err.splitlines()) == 1
    assert re.search(message, said.err)


def without_transformers(patch: pytest.MonkeyPatch) -> None:
    """As where the extra is not installed."""
    for name in list(sys.modules):
        if name.startswith(("invariants.prove", "hicache.transformers")):
            patch.delitem(sys.modules, name)
    patch.setitem(sys.modules, "transformers", None)


def test_without_the_extra_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = prove(tmp_path, "--family", "gemma3", "--requests", "90", "--plant", WRONG, code=12)
    tape = found["failures"][0]["tape"]
    capsys.readouterr()
    without_transformers(monkeypatch)
    for words in (["prove", "--requests", "1"], ["fuzz", "--replay", tape, "--plant", ""]):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert len(said.splitlines()) == 1
        assert "expected transformers to be installed, and it is not" in said
        assert ".[transformers]" in said
