"""`hicache shrink` from end to end: files, fresh processes, exit codes, all kinds of bad input."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest

import traces.commands.shrink as command
from hicache.core.config import Config
from invariants.base import INVARIANT, NONDETERMINISM
from invariants.fuzz import play
from invariants.fuzz.tapes.tape import Act, Entry, Tape, read, write
from invariants.planted.base import planted
from traces.cli import main

from .rig import Capsys, Patch, fails

BUG = "failed-backup-keeps-its-lock"
FAILING = Tape(
    Config(2, (9,), (7,), kv_events=True),
    (
        Entry("quiesce", {}),
        Entry("arrive", {"request": 4, "tokens": [[2, 7]], "space": "", "whole": False}, gap=5),
        Entry("match", {"request": 4}),
        Entry("admit", {"request": 4, "chunk": 20}, acts=(Act(3, 0), Act(3, 1, "torn"))),
        Entry("wait", {"polls": 2}, 40, True, (Act(2, 0, "torn"),)),
        Entry("wait", {"polls": 2}, 40),
        Entry("evict", {"tier": 0, "component": "full", "pages": 1}),
    ),
    seed=3,
    notes={"commit": "0123abc"},
)


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    path = tmp_path / "tape.jsonl"
    write(path, FAILING)
    return path


@pytest.mark.one_in(16)
def test_shrink_exports_a_test_that_fails(failing: Path, tmp_path: Path, capsys: Capsys) -> None:
    small, folder, out = tmp_path / "small.jsonl", tmp_path / "new" / "regress", tmp_path / "o.json"
    wanted = ["-o", str(small), "--export", str(folder), "--json", str(out), "--plant", BUG]
    assert main(["shrink", str(failing), *wanted]) == 0
    tape = read(small)
    assert len(tape.entries) == 3
    assert tape.notes == {"commit": "0123abc", "plant": BUG}
    (test,) = folder.iterdir()
    found = json.loads(out.read_text())
    assert found["failure"]["code"] == INVARIANT
    assert found["failure"]["text"].endswith(f"\nreplay: hicache fuzz --replay {small}")
    assert found["entries"] == {"before": 7, "after": 3}
    assert found["written"] == [str(small), str(test)]
    assert found["verified"] == 2
    assert 0 < found["plays"] < 400
    said = capsys.readouterr().out
    assert "7 -> 3 operations" in said
    assert "torn" not in said  # a plain failure does as well
    exported = runpy.run_path(str(test))
    assert exported["TAPE"].entries == tape.entries
    assert "at commit 0123abc" in test.read_text()
    exported["test_the_core_plays_it_clean"]()
    with planted(BUG), pytest.raises(AssertionError, match=found["failure"]["kind"]):
        exported["test_the_core_plays_it_clean"]()
    # the small tape notes the bug that it needs
    assert main(["shrink", str(small), "--as-is"]) == INVARIANT
    assert main(["shrink", str(small), "--as-is", "--plant", ""]) == 0
    assert "it does not fail" in capsys.readouterr().out


@pytest.fixture
def alone(monkeypatch: Patch) -> None:
    """No processes: they see what this one sees."""
    monkeypatch.setattr(command, "_verify", lambda *_: None)


@pytest.mark.usefixtures("alone")
def test_tape_on_stdout_sends_the_report_to_stderr(failing: Path, capsys: Capsys) -> None:
    assert main(["shrink", str(failing), "--plant", BUG, "--plays", "3"]) == 0
    said = capsys.readouterr()
    assert said.out.startswith('{"config":')
    assert "stopped by --plays 3" in said.err


@pytest.mark.one_in(8)
def test_a_different_result_in_a_new_process_stops_shrinking(
    failing: Path, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    small, folder = tmp_path / "small.jsonl", tmp_path / "regress"
    arguments = ["shrink", str(failing), "--plant", BUG, "--plays", "2", "-o", str(small)]
    arguments += ["--export", str(folder)]
    other = json.dumps({"failure": {"code": 10, "kind": "other"}})
    right = json.dumps({"failure": {"code": 11, "kind": "LOCK-BAL"}})
    complaint = "Traceback:\n  line 1\nhicache: out of luck\n"
    for answers, found in (
        ([other], "with 11 LOCK-BAL in a fresh process, found: 10 other;"),
        ([""], "found: no message;"),
        (["{}"], "found: {};"),
        ([complaint], "found: hicache: out of luck;"),
        (['{"failure": null}'], "found: it does not fail;"),
        ([right, "it passes"], "expected of the test that it fails with"),
    ):
        left = iter(answers)
        monkeypatch.setattr(command, "_run", lambda *_, left=left: next(left))
        assert main(arguments) == NONDETERMINISM
        said = capsys.readouterr().err
        assert "nothing was written" in said
        assert found in said
        assert not small.exists()
        assert not folder.exists()


def test_a_clean_tape_is_refused_in_one_line(failing: Path, capsys: Capsys) -> None:
    said = fails(capsys, "shrink", str(failing))
    assert "expected a tape that fails, found one that does not" in said
    assert "--plant" in said


BAD_OPTIONS: dict[str, tuple[Callable[[Path], list[str]], str]] = {
    "an unknown bug": (
        lambda _: ["--plant", "failed-backup-keeps-its-look"],
        f"did you mean {BUG}?",
    ),
    "no folder for the tape": (lambda at: ["-o", str(at / "no" / "small.jsonl")], "no directory"),
    "a folder for a file": (lambda at: ["-o", str(at)], "a directory"),
    "a file for a folder": (lambda at: ["--export", str(at / "tape.jsonl")], "found: a file"),
    "a folder in a file": (lambda at: ["--export", str(at / "tape.jsonl" / "x")], "found: a file"),
    "two things on stdout": (lambda _: ["--json", "-"], "the tape goes to stdout"),
    "no play": (lambda _: ["--plays", "0"], "--plays"),
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_a_bad_option_is_one_line(name: str, failing: Path, tmp_path: Path, capsys: Capsys) -> None:
    make, expected = BAD_OPTIONS[name]
    assert expected in fails(capsys, "shrink", str(failing), *make(tmp_path))
    assert list(tmp_path.iterdir()) == [failing]


def test_an_endless_tape_is_a_failure(failing: Path, monkeypatch: Patch, capsys: Capsys) -> None:
    def forever(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(command, "allowed_s", lambda entries: 0.2)
    monkeypatch.setattr(play, "step", forever)
    assert main(["shrink", str(failing), "--as-is"]) == 14
    assert "one sequence was still at work after 0.2 s of computing" in capsys.readouterr().out


@pytest.mark.one_in(16)
def test_an_exported_test_keeps_its_assert_where_python_drops_them(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    path = tmp_path / "test_small.py"
    path.write_text("def test_the_core_plays_it_clean():\n    assert False\n")
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")
    assert command._run(command._EXPORTED, [str(path), ""], "0") == "it fails\n"
