"""Every fault of a tape on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from invariants.fuzz import sequence as tapes

from .rig import Capsys, drawn, fails

pytestmark = pytest.mark.usefixtures("here")

TAPE = tapes.dumps(drawn(7, 6))
LINES = TAPE.splitlines()
HEAD = json.loads(LINES[0])
ENTRY = json.loads(LINES[1])


def tape_with(head: dict[str, Any] | None = None, entry: dict[str, Any] | None = None) -> str:
    lines = [json.dumps({**HEAD, **(head or {})}), json.dumps({**ENTRY, **(entry or {})})]
    return "\n".join([*lines, *LINES[2:]]) + "\n"


def config(**changed: Any) -> dict[str, Any]:
    return {"config": {**HEAD["config"], **changed}}


TAPES = {
    "lines behind the last": (TAPE + "{}\n", "expected nothing behind the last line"),
    "cut between lines": ("\n".join(LINES[:-1]) + "\n", "it was cut off"),
    "cut within a line": (TAPE[: len(TAPE) // 2], "cut off"),
    "an entry gone": ("\n".join([*LINES[:1], *LINES[2:]]) + "\n", "cut off"),
    "a recording": ('{"hicache_recording":3}\n', "found the fields hicache_recording; name"),
    "another object": ('{"a":1,"b":2}\n', "found the fields a, b; name"),
    "5 MB": ('{"a":"' + "x" * (5 << 20) + '"}\n', "line 1: expected at most 4194304 char"),
    "NaN": (tape_with({"seed": float("nan")}), "(the number NaN)"),
    "another version": (tape_with({"version": 2}), "version: expected 1, found 2; record"),
    "a version that is true": (tape_with({"version": True}), "version: expected 1, found true"),
    "a field of the head": (tape_with({"executer": "replies"}), 'found "executer"'),
    "a field of an entry": (tape_with(entry={"polls": True}), 'found "polls"; mend the line'),
    "a long seed": (tape_with({"seed": 10**4000}), "seed: expected an integer from 0 to"),
    "a note of numbers": (tape_with({"notes": {"twin": 5}}), "twin: expected a text, found 5"),
    "a pool of halves": (tape_with(config(device_pages=[1.5])), "device_pages[0]: expected an int"),
    "a large pool": (tape_with(config(host_pages=[10**12])), "host_pages[0]: expected an integer"),
    "a switch of text": (tape_with(config(kv_events="yes")), "kv_events: expected true or false"),
    "a policy that is gone": (tape_with(config(write_policy="write_never")), "write_never"),
    "a component that is gone": (
        tape_with(config(components=["full", "gone"])),
        "config: expected legal settings, found",
    ),
    "a setting too many": (tape_with(config(colour=1)), "colour"),
    "a setting too few": (tape_with({"config": {"page_size": 1}}), "a difference in"),
    "an order": (tape_with({"order": "pct:" + "9" * 5000}), "order: expected one of"),
    "an executor": (tape_with({"executor": "slurm" * 9999}), "executor: expected replies, files"),
    "a device of 9 layers": (
        tape_with({"executor": "device:9:1:1:1"}),
        "executor: expected replies",
    ),
    "half a device": (tape_with({"executor": "device:1"}), "executor: expected replies, files"),
    "9 ranks": (tape_with({"ranks": 9}), "ranks: expected an integer from 1 to 8, found 9"),
    "ranks that are true": (tape_with({"ranks": True}), "ranks: expected an integer from 1 to 8"),
    "an operation": (tape_with(entry={"op": "a" * 99999}), 'found "aaaaaaaaaa'),
    "a fault": (tape_with(entry={"acts": [[1, 0, "fire"]]}), "line 2: expected a fault of this"),
    "a delay": (tape_with(entry={"acts": [[10**30, 0, ""]]}), "line 2: acts[0]: expected [delay"),
    "a gap": (tape_with(entry={"gap": -1}), "line 2: gap: expected"),
    "a word for a number": (
        tape_with(entry={"op": "admit", "args": {"request": 0, "chunk": "many"}}),
        "line 2: admit: chunk: expected an integer",
    ),
}


@pytest.mark.parametrize(("text", "word"), TAPES.values(), ids=TAPES.keys())
def test_a_bad_tape_is_one_line(text: str, word: str, capsys: Capsys) -> None:
    Path("bad.jsonl").write_text(text)
    said = fails(capsys, "fuzz", "--replay", "bad.jsonl", "--json", "out.json")
    assert word in said
    assert len(said) < 500
    assert [path.name for path in Path().iterdir()] == ["bad.jsonl"]


def test_directories_and_huge_files_are_refused_in_one_line(capsys: Capsys) -> None:
    Path("raw.jsonl").write_bytes(b"\xff\xfe")
    with open("huge.jsonl", "wb") as stream:
        stream.truncate(200 << 20)
    for path, word in (
        ("gone.jsonl", "readable sequence"),
        (".", "found: a directory; name a file"),
        ("raw.jsonl", "found: byte 0xff, not UTF-8"),
        ("huge.jsonl", "expected at most 67108864 bytes, found 209715200"),
    ):
        assert word in fails(capsys, "fuzz", "--replay", path)
