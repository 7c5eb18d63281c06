"""`hicache prove`: its table, its verdict and its tapes, what logits see of planted mistakes, and
what it says to bad input."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import pytest

from invariants.prove.oracle import Oracle, Verdict
from tests.traces.test_json_docs import compare
from traces.cli import main
from traces.fuzzing.files import Files
from traces.proving.jobs import Sum
from traces.proving.report import verdict
from traces.proving.work import Proved

from .rig import Capsys, Patch, fails

WRONG = "window-is-a-page-short"


def prove(folder: Path, *options: str, code: int = 0) -> dict[str, Any]:
    out = folder / "out.json"
    words = ["prove", *options, "--jobs", "1", "-o", str(folder / "found"), "--json", str(out)]
    assert main(words) == code
    found: dict[str, Any] = json.loads(out.read_text())
    assert found["exit_code"] == code
    return found


@pytest.mark.one_in(16)
def test_families_are_proved_and_a_wrong_definition_is_found(
    tmp_path: Path, capsys: Capsys
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


def jumping(patch: Patch, every: int) -> None:
    """One comparison of so many is called unstable."""
    judge, judged = Oracle.judge, itertools.count(1)

    def jumped(self: Oracle, *given: Any) -> Verdict:
        found = judge(self, *given)
        return found if next(judged) % every else replace(found, kind="unstable")

    patch.setattr(Oracle, "judge", jumped)


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("every", "code"), [(10, 17), (60, 0)])
def test_a_family_that_jumps_often_is_not_judged(
    every: int, code: int, tmp_path: Path, capsys: Capsys, monkeypatch: Patch
) -> None:
    jumping(monkeypatch, every)
    found = prove(tmp_path, "--family", "llama", "--passes", "400", "--check", "off", code=code)
    (family,) = found["families"]
    assert family["judged"] is (code == 0)
    assert family["unstable"] == family["passes"] // every > 5
    said = " ".join(capsys.readouterr().out.split())
    if code:
        assert re.search(r"llama was not judged: it jumped in \d+ of \d+ passes, more", said)
        assert "--dtype fp32" in said
        assert "gave the logits" not in said
    else:
        assert f"{family['unstable']} times a model itself jumped" in said


def test_jumps_of_few_requests_are_the_models_own() -> None:
    """The passes of a request that has jumped go on from there."""
    jumped = Counter({"passes": 300, "unstable": 26, "unstable requests": 5})
    assert Proved("deepseek-v4", paths=jumped).judged
    assert not Proved("deepseek-v4", paths=jumped + Counter({"unstable requests": 1})).judged


def test_a_family_without_a_pass_is_named() -> None:
    seen = Proved("llama", 1, 5, 50, Counter(passes=40), 1e-7, 0.1, 1e-6)
    families = {"llama": seen, "gemma3": Proved("gemma3"), "mamba2": Proved("mamba2")}
    said = verdict(Sum(families, Files(Path("found"))))
    assert said[0].startswith("All 40 passes of 1 family gave the logits")
    assert said[1:] == ["No pass of gemma3, mamba2 was compared: give the run more time."]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--family", "alpaca"), "expected a list of deepseek-v3, .*qwen3-next, found 'alpaca'"),
        (("--family", "mamba2", "--attention", "sdpa"), "attention of mamba2: expected one of eag"),
        (("--plant", "nothing"), "planted bug: .*nothing|expected .*nothing"),
        (("--requests", "0"), "--requests: .*found"),
        (("--seconds", "5", "--requests", "5"), "--seconds and --requests do not go together"),
    ],
)
def test_bad_input_is_one_line(options: tuple[str, ...], message: str, capsys: Capsys) -> None:
    assert re.search(message, fails(capsys, "prove", *options))


def without_transformers(patch: Patch) -> None:
    """As where the extra is not installed."""
    for name in list(sys.modules):
        if name.startswith(("invariants.prove", "hicache.transformers")):
            patch.delitem(sys.modules, name)
    patch.setitem(sys.modules, "transformers", None)


@pytest.mark.one_in(64)
def test_without_the_extra_it_is_named(monkeypatch: Patch, capsys: Capsys, tmp_path: Path) -> None:
    found = prove(tmp_path, "--family", "gemma3", "--requests", "90", "--plant", WRONG, code=12)
    tape = found["failures"][0]["tape"]
    capsys.readouterr()
    without_transformers(monkeypatch)
    for words in (["prove", "--requests", "1"], ["fuzz", "--replay", tape, "--plant", ""]):
        said = fails(capsys, *words)
        assert "expected transformers to be installed, and it is not" in said
        assert ".[transformers]" in said


PLANTED = ("prove", "--planted", "--requests", "10", "--jobs", "1", "--plant")


@pytest.mark.one_in(16)
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
def test_bad_input_beside_planted_is_one_line(
    options: tuple[str, ...], message: str, capsys: Capsys
) -> None:
    assert re.search(message, fails(capsys, *PLANTED, *options))
