"""What a command says to a reader who left, to a full disk, to nobody; and what it keeps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from invariants.fuzz.tapes import tape as tapes
from tests.patience import PATIENCE_S
from tests.planted import planted
from traces import executors
from traces.cli import main
from traces.executors import WorkerLost
from traces.fuzzing import results as fuzz_files
from traces.fuzzing.results import Files, Tally
from traces.fuzzing.work import FoundFailure, Result

from .rig import BUG, Capsys, Patch, failing_tape, mooncake, write

pytestmark = pytest.mark.usefixtures("here")

ROOT = Path(__file__).resolve().parents[2]
HUNT = ("fuzz", "--seed", "16", "--sequences", "3", "--operations", "25", "--jobs", "1")


@pytest.fixture
def failing() -> str:
    tapes.write(Path("failing.jsonl"), failing_tape())
    return "failing.jsonl"


def ran(words: Iterable[str], shell: str, bug: str = "") -> tuple[str, str]:
    """What a shell prints where `hicache` stands for the command. bug: planted in it."""
    module = f"tests.planted.run {bug}" if bug else "traces"
    done = subprocess.run(
        ["bash", "-c", f'hicache() {{ "$PY" -m {module} {" ".join(words)}; }}; {shell}'],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PY": sys.executable},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
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


SAME = {
    "itself": ("fuzz", "--replay", "failing.jsonl", "--json", "failing.jsonl"),
    "spelled otherwise": ("fuzz", "--replay", "failing.jsonl", "--json", "./failing.jsonl"),
    "by a link": ("fuzz", "--replay", "failing.jsonl", "--json", "link.jsonl"),
}


@pytest.mark.parametrize("words", SAME.values(), ids=SAME.keys())
def test_outputs_never_overwrite_the_tape(
    words: tuple[str, ...], failing: str, capsys: Capsys
) -> None:
    Path("link.jsonl").symlink_to(failing)
    before = Path(failing).read_text()
    assert main(list(words)) == 2
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert "which it would replace, found" in said.err
    assert Path(failing).read_text() == before
    assert sorted(path.name for path in Path().iterdir()) == [failing, "link.jsonl"]


# -- the files of a hunt


def test_an_unwritten_failure_is_reported_with_its_command(
    monkeypatch: Patch, capsys: Capsys
) -> None:
    def full(path: str, pieces: Iterable[str]) -> None:
        raise CallerError(f"{path}: found: No space left on device")

    monkeypatch.setattr(fuzz_files, "write_whole", full)
    with planted(BUG):
        assert main([*HUNT]) == 11
    said = capsys.readouterr()
    assert "No space left on device; the run goes on\n" in said.err
    again = "hicache fuzz --seed 18 --sequences 1 --operations 25"
    assert f"    not written; to draw it again: {again}\n" in said.out
    with planted(BUG):
        assert main([*again.split()[1:], "--jobs", "1"]) == 11


def test_a_removed_output_folder_is_reported(capsys: Capsys) -> None:
    Path("folder").write_text("")
    files = Files(Path("folder/below"))
    files.keep(FoundFailure(11, "OWN-D", "text", 1, "tape\n", "11-own-d"), Tally())
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "found: Not a directory" in said
    assert not files.paths


def test_the_document_has_the_exit_code_of_the_command(monkeypatch: Patch) -> None:
    def code_of(*words: str) -> int:
        code = main([*words, "--json", "out.json"])
        assert json.loads(Path("out.json").read_text())["exit_code"] == code
        return code

    assert code_of("fuzz", "--seed", "7", "--sequences", "1", "--jobs", "1") == 0
    with planted(BUG):
        assert code_of(*HUNT) == 11

    def interrupted(*_: object) -> Iterator[Result]:
        raise KeyboardInterrupt
        yield

    monkeypatch.setitem(executors.EXECUTORS, "local", interrupted)
    assert code_of(*HUNT) == 130

    def lost(*_: object) -> Iterator[Result]:
        raise WorkerLost("gone")
        yield

    monkeypatch.setitem(executors.EXECUTORS, "local", lost)
    assert code_of(*HUNT) == 17
