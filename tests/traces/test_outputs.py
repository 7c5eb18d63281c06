"""Files that a command writes: none replaces an input, and all are whole or not there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main
from traces.terminal import output

from .rig import Capsys, Patch, fails, input_files

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def inputs() -> dict[str, str]:
    return input_files()


# An input, and the command without the file that it writes.
WRITERS = [
    ("trace.jsonl", "inspect trace.jsonl --json"),
    ("trace.jsonl", "replay trace.jsonl --json"),
    ("trace.jsonl", "convert trace.jsonl -o"),
    ("trace.jsonl", "replay trace.jsonl --timeline"),
    ("model.json", "replay trace.jsonl --model model.json --json"),
    ("profile.json", "replay trace.jsonl --hardware ./profile.json --json"),
    ("tape.jsonl", "fuzz --replay tape.jsonl --json"),
    ("trace.jsonl", "twin trace.jsonl --profile profile.json --json"),
    ("profile.json", "twin trace.jsonl --profile profile.json --recording"),
]


@pytest.mark.parametrize(("read", "words"), WRITERS, ids=[words for _, words in WRITERS])
def test_no_output_replaces_an_input(
    read: str, words: str, inputs: dict[str, str], capsys: Capsys
) -> None:
    before = sorted(os.listdir())
    for name in (read, f"./{read}", f"hard-{read}", f"soft-{read}", str(Path(read).absolute())):
        assert "which it would replace, found" in fails(capsys, *words.split(), name)
    assert {name: Path(name).read_text() for name in inputs} == inputs
    assert sorted(os.listdir()) == before


@pytest.mark.parametrize("words", [*(words for _, words in WRITERS), "generate multiturn -o"])
def test_an_output_that_cannot_be_written_is_found_before_the_work(
    words: str, inputs: dict[str, str], capsys: Capsys
) -> None:
    Path("loop").symlink_to("loop")
    Path("kept").write_text("")
    Path("kept").chmod(0o444)
    Path("folder").mkdir()
    before = sorted(os.listdir())
    for name, said in (
        ("trace.jsonl/out", "found: no directory there"),
        ("missing/out", "found: no directory there"),
        ("folder", "found: a directory"),
        ("loop", "found: a link to itself"),
        ("kept", "found: a read-only file"),
        ("x" * 256, "found: File name too long"),
        ("", "expected a name, found none"),
        ("a\0b", "expected a name, found 'a\\x00b'"),
        ("/dev/fd/99", "found: no"),
    ):
        assert said in fails(capsys, *words.split(), name)
    assert sorted(os.listdir()) == before


def test_an_output_does_not_become_a_part_of_the_folder_that_is_read(
    inputs: dict[str, str], capsys: Capsys
) -> None:
    Path("many").mkdir()
    Path("many/a.json").write_text("mine")
    for words in ("convert many -o", "inspect many --json", "sweep many -o", "size many --points"):
        for name in ("many/a.json", "many/../many/new.json"):
            said = fails(capsys, *words.split(), name)
            assert "expected a file outside the folder of the trace" in said
    assert Path("many/a.json").read_text() == "mine"
    assert os.listdir("many") == ["a.json"]
    said = fails(capsys, "inspect", "trace.jsonl", "--tokenizer", "t.json", "--json", "t.json")
    assert "expected another file than the tokenizer" in said


def test_standard_output_has_several_names(inputs: dict[str, str], capsys: Capsys) -> None:
    for name in ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        assert main(["inspect", "trace.jsonl", "--json", name]) == 0
        said = capsys.readouterr()
        assert json.loads(said.out)["requests"] == 1
        assert "input tokens" in said.err


def test_all_files_are_written_or_none(inputs: dict[str, str], monkeypatch: Patch) -> None:
    def fill(name: str, path: Path, mode: str, pieces: Any) -> None:
        if name == "out.json":
            raise output.unwritable(name, "No space left on device")
        path.write_text("".join(pieces))

    before = sorted(os.listdir())
    monkeypatch.setattr(output, "_fill", fill)
    words = ("replay", "trace.jsonl", "--requests", "rows.jsonl", "--json", "out.json")
    assert main([*words]) == 2
    assert sorted(os.listdir()) == before


# -- what killed commands left


def dead() -> int:
    """The number of a process that has ended."""
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        return process.pid


def test_drafts_of_dead_processes_are_removed_and_nothing_else() -> None:
    host, gone = output._HOST, dead()
    left = [f".hicache-{host}-{gone}-0.tmp", f".hicache-{host}-{gone}-17.tmp"]
    kept = [
        f".hicache-{host}-{os.getppid()}-0.tmp",  # it runs
        f".hicache-other-{gone}-0.tmp",  # of another machine
        f".hicache-{host}-{gone}.json",
        f"hicache-{host}-{gone}.jsonl",
        f"my.hicache-{host}-{gone}-0.tmp",
        f".{gone}.tmp",
    ]
    for name in (*left, *kept):
        Path(name).write_text("mine")
    output.write_json("out.json", {})
    assert sorted(one.name for one in Path().iterdir()) == sorted([*kept, "out.json"])
