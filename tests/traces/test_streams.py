"""What a command says to a reader who left, to a full disk, to nobody; and what it keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz import sequence as tapes
from tests.patience import PATIENCE_S

from .rig import BUG, ROOT, failing_tape, mooncake, write

pytestmark = pytest.mark.usefixtures("here")

HUNT = ("fuzz", "--seed", "1", "--sequences", "3", "--operations", "25", "--jobs", "1")


@pytest.fixture
def failing() -> str:
    Path("failing.jsonl").write_text(tapes.dumps(failing_tape()))
    return "failing.jsonl"


def ran(words: Iterable[str], shell: str, bug: str = "") -> tuple[str, str]:
    """What a shell prints where `hicache` stands for the command. bug: planted in it."""
    module = f"tests.planted.run {bug}" if bug else "traces"
    program = f'hicache() {{ "$PY" -m {module} {" ".join(words)}; }}; {shell}'
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PY": sys.executable}
    how: dict[str, Any] = {"env": environment, "timeout": PATIENCE_S, "check": False}
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, **how)
    return done.stdout, done.stderr


GONE = "true; echo ${PIPESTATUS[0]}"


@pytest.mark.parametrize(
    "shell",
    [
        f"hicache | {GONE}",
        f"hicache 2>&1 | {GONE}",
        "hicache >&- 2>&-; echo $?",
    ],
    ids=["left", "left both", "closed"],
)
def test_a_closed_pipe_changes_neither_exit_code_nor_files(shell: str, failing: str) -> None:
    for words in (
        (*HUNT, "--json", "out.json"),
        ("fuzz", "--replay", failing, "--json", "out.json"),
    ):
        out, err = ran(words, shell, BUG)
        assert out == "11\n"
        assert "Traceback" not in err
        assert "Broken pipe" not in err
        assert json.loads(Path("out.json").read_text())["exit_code"] == 11
        Path("out.json").unlink()
    assert len(list(Path("fuzz-failures").iterdir())) == 2


@pytest.mark.parametrize("command", ["inspect", "replay"])
def test_a_reader_who_left_early_does_not_cost_the_document(command: str) -> None:
    write(Path("trace.jsonl"), mooncake([1, 2], 600))
    out, err = ran((command, "trace.jsonl", "--json", "out.json"), f"hicache | {GONE}")
    assert (out, err) == ("0\n", "")
    assert json.loads(Path("out.json").read_text())


@pytest.mark.parametrize("shell", [f"hicache 2>&1 | {GONE}", "hicache 2>/dev/full; echo $?"])
def test_bad_input_exits_with_2_even_with_closed_streams(shell: str) -> None:
    assert ran(("fuzz", "--jobs", "0"), shell) == ("2\n", "")
    assert ran(("fuzz", "--replay", "gone.jsonl"), shell) == ("2\n", "")


def test_a_full_disk_is_reported_in_one_line(failing: str) -> None:
    out, err = ran(("fuzz", "--replay", failing), "hicache >/dev/full; echo $?", BUG)
    assert out == "2\n"
    assert err.count("\n") == 1
    assert "no space left to write the report: No space left on device; free some" in err


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_unencodable_characters_are_escaped(encoding: str, failing: str) -> None:
    Path(failing).rename("failing…")
    whole, _ = ran(("fuzz", "--replay", "*iling*"), "hicache; echo $?", BUG)
    out, err = ran(
        ("fuzz", "--replay", "*iling*"), f"PYTHONIOENCODING={encoding} hicache; echo $?", BUG
    )
    assert (out.splitlines()[-1], err) == ("11", "")
    assert len(out.splitlines()) == len(whole.splitlines())
    assert "replay: hicache fuzz --replay 'failing\\u2026'" in out
