"""Files that nobody vouches for: no name reaches the terminal raw, from a file, the name of a file
or an option; numbers are bounded; each mistake is one line."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.planted import planted
from tests.tiny import LLAMA
from traces.cli import main

from .rig import BUG, HEADER, Capsys, Patch, fails, mooncake, native, write

pytestmark = pytest.mark.usefixtures("here")

# Clears the screen, sets a title, turns the line round, forges a line, and is markup of rich.
BAD = "\x1b[2J\x1b]0;t\x07\u202e[bold]\r\nhicache: forged\n\x9b1m\u2028\ufeff\x7f[/bold]\ud800"
NAMES = {"escapes": BAD, "a megabyte of escapes": "\u202e" * (1 << 18)}
_RAW = re.compile("[\0-\x09\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
MOST_CHARACTERS = 20_000


def ran(capsys: Capsys, *arguments: str) -> int:
    """Runs the command, whose output must be clean; returns its exit code."""
    code = main(list(arguments))
    output = capsys.readouterr()
    printed = output.out + output.err
    assert not _RAW.search(printed), (arguments, ascii(_RAW.findall(printed)))
    assert not re.search("^hicache: forged", printed, re.MULTILINE)
    assert len(printed) < MOST_CHARACTERS
    assert "Traceback" not in printed, printed[-600:]
    if code == 2:
        assert output.err.count("\n") == 1
    return code


NATIVE: dict[str, Callable[[str], list[Any]]] = {
    "made_by": lambda bad: [{**HEADER, "made_by": {bad: bad}}, native(("a", 70), output=("b", 3))],
    "format": lambda bad: [{**HEADER, "format": bad}],
    "stream": lambda bad: [HEADER, native((bad, 70), output=(bad, 3))],
    "namespace": lambda bad: [HEADER, native(("a", 70), output=("b", 3), namespace=bad[:90])],
    "session": lambda bad: [HEADER, native(("a", 70), output=("b", 3), session=bad)],
    "a field": lambda bad: [HEADER, {**native(("a", 70), output=("b", 3)), bad: 1}],
    "length": lambda bad: [HEADER, {**native(("a", 70), output=("b", 3)), "output": ["b", bad]}],
    "first field": lambda bad: [{bad: 1}],
    "hash_ids": lambda bad: [{**mooncake([1]), "hash_ids": [bad]}],
    "ignored": lambda bad: [{**mooncake([1]), bad: bad}],
}


@pytest.mark.parametrize("bad", NAMES.values(), ids=NAMES.keys())
def test_traces(bad: str, capsys: Capsys) -> None:
    seen = set()
    for text in {bad, bad.replace("\ud800", "")}:  # with a lone surrogate it is no JSON
        for field, make in NATIVE.items():
            path = str(write(Path(f"{field}.jsonl"), *make(text)))
            seen.add(ran(capsys, "inspect", path))
            seen.add(ran(capsys, "replay", path))
    Path("raw.jsonl").write_bytes(bad.encode("utf-8", "surrogatepass"))
    assert ran(capsys, "inspect", "raw.jsonl") == 2
    assert seen == {0, 2}


@pytest.mark.parametrize("bad", NAMES.values(), ids=NAMES.keys())
def test_models(bad: str, capsys: Capsys) -> None:
    cases = [{**LLAMA, name: bad} for name in LLAMA if name != "model_type"]
    cases += [{**LLAMA, name: bad} for name in ("dtype", "quantization_config", "layer_types")]
    cases += [{**LLAMA, "layer_types": [bad] * 4}]
    twice = json.dumps({bad: 1})[:-1] + f", {json.dumps(bad)}: 2}}"
    for text in (*map(json.dumps, cases), twice, bad):
        Path("model.json").write_text(text, errors="replace")
        assert ran(capsys, "models", "model.json") == 2


FILE = "a\x1b[2J\u202e[bold]\nhicache: forged\n\x7f.jsonl"
HUNT = "fuzz --seed 1 --sequences 1 --operations 25 --jobs 1 -o"


def test_names_of_files(capsys: Capsys) -> None:
    write(Path(FILE), mooncake([1, 2, 3]), mooncake([1, 2, 3]))
    for command in (
        ["replay", FILE, "--why", "1"],
        ["replay", FILE, "--timeline", "t"],
        ["sweep", FILE, "--host-bytes", "0,1GB", "--jobs", "1"],
        ["inspect", FILE, "--json", f"{FILE}.out"],
    ):
        assert ran(capsys, *command) == 0
    assert FILE in Path(f"{FILE}.out").read_text().encode().decode("unicode_escape")
    with planted(BUG):
        assert ran(capsys, *HUNT.split(), "folder\n\x1b[2J") == 11
    for missing in (FILE + "x", "y\n" * 9000):
        for words in (
            ("replay", missing),
            ("replay", "--hardware", f"{missing}.json"),
            ("models", f"{missing}.json"),
            ("fuzz", "--replay", missing),
            ("twin", missing, "--profile", missing),
            ("inspect", FILE, "--json", f"{missing}/out"),
        ):
            assert ran(capsys, *words) == 2


@pytest.mark.parametrize("bad", [*NAMES.values(), "\0"], ids=[*NAMES.keys(), "nul"])
def test_options(bad: str, capsys: Capsys) -> None:
    bad = bad[: 1 << 15]  # Linux takes words of up to 128 KiB
    for words in (
        (bad,),
        *(("replay", flag, bad) for flag in ("--mode", "--model", "--host-ratio", "--components")),
        ("replay", "--scheduler", f"{bad}.py:{bad}"),
        ("replay", f"--{bad}"),
        ("generate", bad),
        ("calibrate", "--device", bad),
    ):
        assert ran(capsys, *words) == 2


NUMBERS = set(LLAMA) - {"model_type", "num_key_value_heads"}  # null is as many heads


@pytest.mark.parametrize(
    "value",
    [str(1 << 62), "9" * 5000, "-1", "1e300", "1e999", "NaN", '"1"', "null", "true"],
    ids=lambda text: text[:20],
)
def test_numbers_of_models_are_bounded(value: str, capsys: Capsys) -> None:
    for case in ({**LLAMA, name: "VALUE"} for name in NUMBERS):
        Path("model.json").write_text(json.dumps(case).replace('"VALUE"', value))
        message = fails(capsys, "models", "model.json")
        assert message.startswith("hicache: model.json: ")
        assert len(message) < 300


def test_running_out_of_memory_is_one_line(monkeypatch: Patch, capsys: Capsys) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    write(Path("trace.jsonl"), mooncake([1, 2], 600))
    monkeypatch.setattr("traces.replaying.options.open_trace", no_memory)
    for command in ("inspect", "replay"):
        assert "to fit in RAM, found that no more" in fails(capsys, command, "trace.jsonl")
