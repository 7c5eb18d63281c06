"""Every fault of a file or an option: one line, the place, exit code 2, no traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hicache import registry
from traces.cli import main

from .rig import HEADER, Capsys, Patch, as_lines, fails, mooncake, native, write

EVICTION = registry.spellings(registry.EVICTION_POLICIES)

GOOD = mooncake([1, 2], 600)
TURN = native(("a", 5), output=("b", 3))

MOONCAKE: dict[str, tuple[bytes | list[bytes], int, str]] = {
    "not json": (b"hello\n", 1, "a JSON object, found hello"),
    "cut short": (b'{"timestamp": 0, "input\n', 1, "a JSON object"),
    "nested without end": (b"[" * 100_000 + b"\n", 1, "a JSON object"),
    "number without end": (b'{"timestamp": ' + b"9" * 5000 + b"}\n", 1, "a JSON object"),
    "not utf-8": (b"\xff\xfe{}\n", 1, "a JSON object"),
    "a list": (as_lines([GOOD, [1]]), 2, "a JSON object, found [1]"),
    "empty": (b"", 1, "a trace, found an empty file"),
    "blank": (b"\n \n", 1, "a trace, found an empty file"),
    "unknown format": (as_lines([{"a": 1}]), 1, "a known format"),
    "nan": (b'{"timestamp": NaN, "hash_ids": []}\n', 1, "a JSON object"),
    "infinite": (b'{"timestamp": 1e999, "hash_ids": []}\n', 1, "a JSON object"),
    "timestamp text": (as_lines([{**GOOD, "timestamp": "0"}]), 1, "timestamp: a number"),
    "negative timestamp": (as_lines([{**GOOD, "timestamp": -1}]), 1, "found -1"),
    "timestamp missing": (as_lines([{"hash_ids": []}]), 1, "found none; add the field"),
    "length true": (as_lines([{**GOOD, "input_length": True}]), 1, "input_length: an integer"),
    "length float": (as_lines([{**GOOD, "input_length": 600.0}]), 1, "found 600.0"),
    "length negative": (as_lines([{**GOOD, "input_length": -600}]), 1, "found -600"),
    "length zero": (as_lines([{**GOOD, "input_length": 0, "hash_ids": []}]), 1, "found 0"),
    "length huge": (as_lines([{**GOOD, "input_length": 10**12}]), 1, "found 1000000000000"),
    "output negative": (as_lines([{**GOOD, "output_length": -1}]), 1, "output_length: an integer"),
    "output zero": (as_lines([{**GOOD, "output_length": 0}]), 1, "output_length: an integer >= 1"),
    "ids missing": (as_lines([GOOD, {**GOOD, "hash_ids": None}]), 2, "hash_ids: a list"),
    "ids too few": (as_lines([GOOD, mooncake([1], 600)]), 2, "expected 2 ids of blocks"),
    "ids too many": (as_lines([GOOD, mooncake([1, 2], 299)]), 2, "expected 1 ids of blocks"),
    "id true": (as_lines([mooncake([1, True])]), 1, "hash_ids[1]: an integer, found true"),
    "id float": (
        as_lines([{**GOOD, "hash_ids": [1, 2.5]}]),
        1,
        "an integer, found 2.5",
    ),
    "id beyond 64 bits": (as_lines([mooncake([1, 1 << 64])]), 1, "at most 64 bits"),
    "id twice": (as_lines([mooncake([1, 2, 1])]), 1, "found 1 twice"),
    "backwards": (
        as_lines([mooncake([1], timestamp=10), {}, GOOD][::2]),
        2,
        "at least 10 (that of the request before), found 0; sort",
    ),
}

NATIVE: dict[str, tuple[list[Any], int, str]] = {
    "other format": ([{"format": "x"}], 1, "a known format"),
    "other version": ([{**HEADER, "version": 3}], 1, "found 3"),
    "version true": ([{**HEADER, "version": True}], 1, "found true"),
    "header alone": ([HEADER], 1, "a request, found none"),
    "misspelt field": ([HEADER, {**TURN, "afer": 1}], 2, "found afer"),
    "no input": ([HEADER, {**TURN, "input": []}], 2, "input: a list of length >= 1"),
    "segment of nothing": ([HEADER, native(("a", 0), output=("b", 1))], 2, "found 0"),
    "segment cut": ([HEADER, {**TURN, "output": ["b"]}], 2, "output: a list of length 2"),
    "stream a number": ([HEADER, {**TURN, "output": [1, 2]}], 2, "output[0]: text, found 1"),
    "no output": ([HEADER, {**TURN, "output": None}], 2, "output: a list"),
    "first waits": ([HEADER, native(("a", 5), output=("b", 3), after=0)], 2, "an earlier request"),
    "waits for itself": (
        [HEADER, TURN, native(("a", 5), output=("b", 3), after=1)],
        3,
        "the number of an earlier request, found 1",
    ),
    "both starts": ([HEADER, TURN, {**TURN, "after": 0}], 3, "either timestamp or after"),
    "delay alone": ([HEADER, {**TURN, "delay": 1}], 2, "delay only beside after"),
    "session": ([HEADER, {**TURN, "session": None}], 2, "session: text"),
    "priority": (
        [HEADER, {**TURN, "priority": 1 << 40}],
        2,
        "priority: an integer <= 2147483648",
    ),
    "priority true": ([HEADER, {**TURN, "priority": True}], 2, "priority: an integer"),
    "namespace": ([HEADER, {**TURN, "namespace": 5}], 2, "namespace: text"),
    "too many tokens": ([HEADER, native(("a", 1 << 24), output=("b", 1))], 2, "found 16777217"),
    "backwards": ([HEADER, {**TURN, "timestamp": 2.5}, TURN], 3, "at least 2.5"),
}

OPTIONS = {
    "--model nothing": "expected one of deepseek-v3",
    "--hardware nothing": "expected one of a100",
    "--format nothing": "expected one of auto, azure, bailian",
    "--mode nothing": "expected one of timed, hits",
    "--check nothing": "expected one of every, sampled, off",
    "--write-policy nothing": "expected one of write_back, write_through",
    "--scheduler nothing": "expected one of fcfs, longest-prefix, priority",
    "--page-size 100": "512-token blocks, or a multiple of it, found 100; use one of 1, 2, 4",
    "--page-size 0": "expected at least 1",
    "--device-tokens 5X": "a number such as 1M",
    "--device-tokens 1": "at least one page of 64 tokens",
    "--device-pages 9": "trace.jsonl:1: expected a request of at most 9 pages",
    "--device-pages 9 --host-ratio -1": "--host-ratio",
    "--host-ratio two": "a number such as 2 or 0.5",
    "--host-bandwidth 0x": "a multiple above 0",
    "--host-bandwidth 50": "a multiple above 0",
    "--model deepseek-v3": "expected weights and a page of each pool within 72 GB",
    "--model llama-3.1-70b": "other --hardware or a smaller --weight-dtype\n",
    "--model llama-3.1-70b --mode hits": "a smaller --weight-dtype, or give --device-tokens\n",
    "--token-budget 3": "at least one page of 64 tokens",
    "--json /nowhere/out.json": "a file that can be written",
    "--unheard-of": "unknown option: --unheard-of",
    "--eviction nothing": f"expected one of {', '.join(EVICTION)}",
    "--components nothing": "expected full, and each of swa, mamba at most once",
    "--components full,nothing": "found 'full,nothing'",
    "--components swa,mamba": "expected full",
    "--components full,swa,swa": "at most once",
    "--components full,swa --swa-window 0": "--swa-window: expected at least 1, found '0'",
    "--components full,swa --swa-window -64": "--swa-window: expected a number",
    "--components full,swa --swa-tokens 0": "--swa-tokens: expected at least 1, found '0'",
    "--components full,swa --swa-tokens -1": "--swa-tokens: expected a number",
    "--components full,swa --swa-window 100 --swa-tokens 191": "expected at least 192, a window in",
    "--components full,mamba --mamba-states 0": "--mamba-states: expected at least 1, found '0'",
    "--components full,mamba --mamba-states -1": "--mamba-states: expected a number",
    "--swa-window 64": "--swa-window: expected swa among the components, found full",
    "--swa-tokens 1M": "--swa-tokens: expected swa among",
    "--mamba-states 8 --components full,swa": "expected mamba among the components, found full,swa",
    "--model llama-3.1-8b --components full,mamba": "expected full, for which llama-3.1-8b has",
    "--model gpt-oss-120b --components full": "expected full,swa, for which gpt-oss-120b has",
    "--model qwen3": "with which qwen3-235b-a22b, qwen3-32b, qwen3-8b, qwen3-next-80b-a3b, qwen3.5",
    "--model gemma-3-27b --device-pages 10 --swa-tokens 64": "--swa-tokens: expected at least 1088",
}


@pytest.mark.parametrize("fault", MOONCAKE)
def test_mooncake(fault: str, tmp_path: Path, capsys: Capsys) -> None:
    text, line, expected = MOONCAKE[fault]
    path = tmp_path / "trace.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else b"".join(text))
    message = fails(capsys, "replay", str(path))
    assert message.startswith(f"hicache: {path}:{line}: expected ")
    assert expected in message


@pytest.mark.parametrize("fault", NATIVE)
def test_native(fault: str, tmp_path: Path, capsys: Capsys) -> None:
    records, line, expected = NATIVE[fault]
    path = write(tmp_path / "trace.jsonl", *records)
    message = fails(capsys, "inspect", str(path))
    assert message.startswith(f"hicache: {path}:{line}: expected ")
    assert expected in message


@pytest.mark.parametrize("given", OPTIONS)
def test_options(given: str, tmp_path: Path, capsys: Capsys) -> None:
    path = write(tmp_path / "trace.jsonl", GOOD)
    assert OPTIONS[given] in fails(capsys, "replay", str(path), *given.split())


@pytest.mark.parametrize("form", [[], ["--format", "mooncake"], ["--format", "native"]])
@pytest.mark.parametrize("text", ['[{"pictures": []}]', '{"pictures": []}', "[\n{}\n]"])
def test_a_file_of_another_kind_is_no_trace(
    text: str, form: list[str], tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    told = fails(capsys, "replay", str(path), *form)
    assert told.endswith("this is no trace that hicache reads: see docs/formats.md\n")


@pytest.mark.parametrize("arguments", ["", "nothing", "generate nothing", "generate multiturn x"])
def test_commands(arguments: str, capsys: Capsys) -> None:
    fails(capsys, *arguments.split())


def test_directory_and_missing_file(tmp_path: Path, capsys: Capsys) -> None:
    assert "found a directory" in fails(capsys, "replay", str(tmp_path))
    assert "No such file" in fails(capsys, "replay", str(tmp_path / "absent"))
    assert "expected a name, found 'a\\x00b'" in fails(capsys, "replay", "a\0b")


@pytest.mark.parametrize("command", ["inspect", "replay"])
@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("trace.jsonl", "--json: expected another file than the trace"),
        ("./trace.jsonl", "--json: expected another file than the trace"),
        ("trace.jsonl/out.json", "no directory there"),
        ("x" * 300, "File name too long"),
        ("", "--json: expected a name, found none"),
    ],
)
def test_outputs_never_overwrite_inputs(
    command: str, name: str, word: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "trace.jsonl", GOOD)
    before = path.read_bytes()
    assert word in fails(capsys, command, "trace.jsonl", "--json", name)
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["trace.jsonl"]


def test_a_file_may_have_the_longest_name(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.jsonl", GOOD)
    out = tmp_path / ("x" * 255)
    assert main(["inspect", str(path), "--json", str(out)]) == 0
    assert json.loads(out.read_text())["requests"] == 1


def test_gzip_faults_name_the_line(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "trace.jsonl"
    whole = gzip.compress(b"".join(as_lines([GOOD] * 3)), mtime=0)
    path.write_bytes(whole[:-12])
    assert f"{path}:" in fails(capsys, "inspect", str(path))
    path.write_bytes(whole + b"more")
    assert f"{path}:4: expected readable data" in fails(capsys, "inspect", str(path))


def test_a_line_without_end_is_not_read_to_its_end(capsys: Capsys) -> None:
    assert "at most 8388608 bytes" in fails(capsys, "inspect", "/dev/zero")
