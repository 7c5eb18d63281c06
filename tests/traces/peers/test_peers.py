"""`hicache peers fuzz|play|bisect|against` on our own core, and on a copy of it with a bug."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from tests.patience import PATIENCE_S
from traces.cli import main
from traces.peers import _known as known
from traces.peers._folders import environment_of, facts_of
from traces.peers._known import NEW_FAILURE, Report
from traces.peers._session import Ended, Session
from traces.peers.against import difference
from traces.peers.bisect import changes, within

Capsys = pytest.CaptureFixture[str]
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
    command += ["--folder", str(folder / "peers"), "-o", str(folder / "found"), *more]
    return main(command), json.loads((folder / "out.json").read_text())


def test_every_law_holds_on_our_own_core(tmp_path: Path, capsys: Capsys) -> None:
    code, said = fuzz(tmp_path, "--sequences", "10")
    assert code == 0
    assert said["sequences"] == 10
    assert said["operations"] >= 900
    assert said["failures"] == []
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
    assert (
        f"hicache peers play {Path(script).name} --peer hicache==here" in Path(script).read_text()
    )

    again = ["peers", "play", tape, "--folder", str(tmp_path / "peers")]
    recording = tmp_path / "recording"
    code = main([*again, "--source", str(broken), "--record", str(recording)])
    assert code == NEW_FAILURE
    assert '"verb": "pools"' in recording.read_text()
    assert "POOL-SUM host full lost" in capsys.readouterr().out
    assert main(again) == 0
    assert "does not fail" in capsys.readouterr().out
    played = ["peers", "play", script, "--peer", "hicache", "--folder", str(tmp_path / "peers")]
    assert main([*played, "--source", str(broken)]) == NEW_FAILURE
    assert "Broken: POOL-SUM: host full" in capsys.readouterr().out
    assert main(played) == 0
    assert "does not fail" in capsys.readouterr().out
    row = Report("#1", "POOL-SUM", "host full lost", (), "here", None, "A known one.")
    monkeypatch.setattr("traces.peers._work.reports", lambda peer: [row])
    assert main([*again, "--source", str(broken)]) == 0
    assert "#1: A known one." in capsys.readouterr().out
    for place, fails in ((broken, True), (ROOT, False)):  # the script needs nothing of ours
        done = subprocess.run(
            [sys.executable, "-P", script],
            capture_output=True,
            timeout=PATIENCE_S,
            env={"PYTHONPATH": str(place)},
        )
        assert (done.returncode != 0) == fails, done.stderr


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("bug", "law"), [(DIES, "DEATH"), (HANGS, "HANG")])
def test_a_peer_that_ends_is_a_failure_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: str, law: str
) -> None:
    monkeypatch.setattr("traces.peers.fuzz.HANG_S", 10.0)
    monkeypatch.setattr("traces.peers.fuzz.DRAW_S", 2.0)
    monkeypatch.setattr("traces.peers._work.SHRINK_S", 20.0)
    monkeypatch.setattr("traces.peers._work.APART_S", 2.0)
    monkeypatch.setattr("traces.peers.fuzz.MOST_ENDED", 1)
    more = ("--source", str(copy(tmp_path / "broken", bug)), "--sequences", "20")
    code, said = fuzz(tmp_path, *more)
    assert code == NEW_FAILURE
    (found,) = (one for one in said["failures"] if one["law"] == law)
    assert found["files"]
    tape = Path(found["files"][0]).read_text().splitlines()
    assert 3 <= len(tape) < 100


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("traces.terminal.asked.MOST_MEMORY", 1 << 20)
    with Session(environment_of("hicache"), str(tmp_path)) as session:
        with pytest.raises(Ended, match="of memory") as caught:
            session.ask({"do": "fuzz", "seed": 0, "count": 9999, "length": 99, "fixed": {}}, 60.0)
        assert caught.value.law == "DEATH"


def test_two_peers_are_compared_by_cause(tmp_path: Path, capsys: Capsys) -> None:
    command = ["peers", "against", "hicache", "hicache", "--seconds", "1", "--operations", "30"]
    command += ["--folder", str(tmp_path / "peers"), "--json", str(tmp_path / "out.json")]
    assert main(command) == 0
    same = json.loads((tmp_path / "out.json").read_text())
    assert same["causes"] == []
    assert same["alike_sequences"] == same["sequences"] > 0
    fewer = [*command, "--config", "pages=12", "--other-config", "pages=6"]
    assert main(fewer) == 0
    other = json.loads((tmp_path / "out.json").read_text())
    assert sum(one["sequences"] for one in other["causes"]) > 0
    assert other["causes"][0]["cause"] in capsys.readouterr().out


@pytest.mark.parametrize(
    ("one", "other", "cause"),
    [
        ({"device": 4}, {"device": 4}, ""),
        ({"device": 4, "host": 2}, {"device": 4, "host": 4}, "the second hits more on host"),
        ({"device": 6}, {"device": 4}, "the first hits more on device"),
        ({"refused": True}, {"device": 4}, "only the first refuses"),
        ({"evicted": 3}, {"evicted": 4}, "the second evicts more"),
        ({"emptied": True}, {"emptied": False}, "only one is emptied"),
    ],
)
def test_a_difference_has_a_cause(one: dict[str, Any], other: dict[str, Any], cause: str) -> None:
    said = difference({"op": "admit", **one}, {"op": "admit", **other})
    assert said == (f"admit: {cause}" if cause else "")


def test_neighbours_that_fail_differently() -> None:
    kinds = {"1": "", "2": "OWN", "4": "OWN", "5": ""}
    found = changes(["1", "2", "3", "4", "5"], kinds)
    assert [(one["before"], one["after"]) for one in found] == [("1", "2"), ("4", "5")]
    with pytest.raises(CallerError, match=r"expected FIRST\.\.LAST of here"):
        within("hicache", "1..2")


def test_a_known_failure_is_matched_by_law_release_and_lines() -> None:
    row = known.Report("#1", "MATCH", "device", ("cache.py:match",), "1.1", "1.2", "text")
    failure = {"code": "MATCH", "kind": "MATCH device short"}
    where = [("engine/cache.py", "match")]
    releases = ("1.0", "1.1", "1.2", "1.3")

    def found(release: str, **other: Any) -> bool:
        given = failure | {key: one for key, one in other.items() if key != "where"}
        return known.match([row], releases, release, given, other.get("where", where)) is row

    assert found("1.1")
    assert found("1.2")
    assert found("main")  # a checkout that no release names
    assert not found("1.0")
    assert not found("1.3")
    assert not found("1.1", code="OWN")
    assert not found("1.1", kind="MATCH host")
    assert not found("1.1", where=[("engine/cache.py", "insert")])


def test_every_table_of_known_failures_can_be_read() -> None:
    for path in sorted(known.FOLDER.glob("*.json")):
        rows = known.reports(path.stem)
        assert rows
        releases = facts_of(path.stem.replace("_", "-")).releases
        for row in rows:
            assert {row.first, row.last or row.first} <= set(releases), row


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["fuzz", "hicache", "--config", "colour=3"], "setting of hicache: expected one of"),
        (["fuzz", "hicache", "--config", "policy=never"], "policy of hicache: expected one of"),
        (["fuzz", "hicache", "--config", "page=x"], "page: expected a whole number"),
        (["fuzz", "hicache", "--config", "page"], "expected KEY=VALUE"),
        (["fuzz", "hicache==2"], "expected a release that its peer knows (here)"),
        (["fuzz", "nonsense"], "PEER: expected one of hicache, sglang"),
        (["play", "no-such-tape"], "no-such-tape"),
        (["play", "script.py"], "--peer: expected the peer that the script was written for"),
        (["play", "script.py", "--peer", "hicache"], "TAPE: expected a script, found none"),
        (["play", "script.py", "--json", "-"], "--json: expected a tape, found script.py"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path, capsys: Capsys, arguments: list[str], text: str
) -> None:
    assert main(["peers", *arguments, "--folder", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert text in said
    assert len(said.strip().splitlines()) == 1
