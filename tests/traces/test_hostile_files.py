"""Files that nobody vouches for, and requests that no machine can serve: one line each."""

from __future__ import annotations

import bz2
import json
import lzma
import os
from pathlib import Path

import pytest

from tests.tiny import LLAMA

from .rig import Capsys, Patch, fails, input_files

pytestmark = pytest.mark.usefixtures("here")


# -- what is read


PACKED = {
    "zip": b"PK\x03\x04" + bytes(26),
    "bzip2": bz2.compress(b"{}"),
    "xz": lzma.compress(b"{}"),
    "7z": b"7z\xbc\xaf\x27\x1c\x00\x00",
}
READERS = ("models x.json", "replay --model x.json", "replay --hardware x.json")


@pytest.mark.parametrize("words", [*READERS, "fuzz --replay x.json", "inspect x.json"])
def test_packed_pipes_and_endless_files_are_refused(words: str, capsys: Capsys) -> None:
    def refused() -> str:
        said = fails(capsys, *words.split())
        Path("x.json").unlink()
        return said

    for kind, content in PACKED.items():
        Path("x.json").write_bytes(content)
        assert f"a file packed with {kind}; unpack it first" in refused()
    if words.startswith("inspect"):
        return
    os.mkfifo("x.json")
    assert "found: a pipe or a device; write it to a file first" in refused()
    Path("x.json").symlink_to("/dev/zero")
    assert "found: a pipe or a device" in refused()
    with open("x.json", "wb") as sparse:
        sparse.truncate(1 << 40)
    assert "expected at most" in refused()


NUMBERS = set(LLAMA) - {"model_type", "num_key_value_heads"}  # null is as many heads


@pytest.mark.parametrize(
    "value",
    [str(1 << 62), "9" * 5000, "-1", "1e300", "1e999", "NaN", '"1"', "null", "true"],
    ids=lambda text: text[:20],
)
def test_numbers_of_models_are_bounded(value: str, capsys: Capsys) -> None:
    for case in ({**LLAMA, name: "VALUE"} for name in NUMBERS):
        Path("model.json").write_text(json.dumps(case).replace('"VALUE"', value))
        said = fails(capsys, "models", "model.json")
        assert said.startswith("hicache: model.json: ")
        assert "expected" in said
        assert len(said) < 300


def test_running_out_of_memory_is_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    input_files()

    def no_memory(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("traces.replaying.options.open_trace", no_memory)
    monkeypatch.setattr("traces.commands.fuzz.loads", no_memory)
    for words in ("inspect trace.jsonl", "replay trace.jsonl", "fuzz --replay tape.jsonl"):
        said = fails(capsys, *words.split())
        assert "to fit in RAM, found that no more is free; give" in said
