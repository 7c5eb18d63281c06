"""`hicache prove --planted`: what logits see, what checks see, and bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.traces.test_json_docs import compare
from traces.cli import main

from .rig import Capsys

PLANTED = ("prove", "--planted", "--requests", "10", "--jobs", "1", "--plant")


def test_a_wrong_definition_and_a_bug_of_the_core(tmp_path: Path, capsys: Capsys) -> None:
    out = tmp_path / "out.json"
    more = ("--family", "gpt-oss", "--json", str(out))
    assert main([*PLANTED, "window-is-a-token-short", *more]) == 0
    wrong = json.loads(out.read_text())
    said = " ".join(capsys.readouterr().out.split())
    assert "Logits see 1 of 1 wrong definitions, in every family of each;" in said
    [one] = wrong["mistakes"]
    assert (one["definition"], one["seen_by"], one["checks"]) == (True, "logits", {})
    assert [seen["family"] for seen in one["logits"]] == one["families"] == ["gpt-oss"]
    assert main([*PLANTED, "arrival_is_not_answered", *more]) == 0
    bug = json.loads(out.read_text())
    [one] = bug["mistakes"]
    assert (one["definition"], one["seen_by"], one["logits"]) == (False, "checks", [])
    assert one["first"]["kind"] == one["checks"]["kind"] == "SPEC Matched"
    assert "checks alone 1" in " ".join(capsys.readouterr().out.split())
    compare("hicache prove --planted", [wrong, bug])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("values-are-keys", "--seconds", "5"), "--seconds and --planted do not go together"),
        (("values-are-keys", "--passes", "5"), "--passes and --planted do not go together"),
        (("values-are-keys", "--dtype", "bf16"), "--dtype and --planted do not go together"),
        (("values-are-keys", "--family", "mamba2"), "--family: expected one of llama, .*, found"),
        (("nothing",), "expected .*found"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], message: str, capsys: Capsys) -> None:
    assert main([*PLANTED, *options]) == 2
    error = capsys.readouterr().err
    assert re.search(message, error)
    assert error.count("\n") == 1
