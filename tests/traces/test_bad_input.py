"""Every fault of a file or an option: one line, the place, exit code 2, no traceback."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from .rig import HEADER, Capsys, as_lines, fails, mooncake, native, write

GOOD = mooncake([1, 2], 600)
TURN = native(("a", 5), output=("b", 3))

MOONCAKE: dict[str, tuple[bytes | list[bytes], int, str]] = {
    "not json": (b"hello\n", 1, "a JSON object, found hello"),
    "cut short": (b'{"timestamp": 0, "input\n', 1, "a JSON object"),
    "not utf-8": (b"\xff\xfe{}\n", 1, "a JSON object"),
    "empty": (b"", 1, "a trace, found an empty file"),
    "unknown format": (as_lines([{"a": 1}]), 1, "a known format"),
    "nan": (b'{"timestamp": NaN, "hash_ids": []}\n', 1, "a JSON object"),
    "negative timestamp": (as_lines([{**GOOD, "timestamp": -1}]), 1, "found -1"),
    "length missing": (as_lines([{"hash_ids": []}]), 1, "a field input_length, found none"),
    "length negative": (as_lines([{**GOOD, "input_length": -600}]), 1, "found -600"),
    "length huge": (as_lines([{**GOOD, "input_length": 10**12}]), 1, "found 1000000000000"),
    "output zero": (as_lines([{**GOOD, "output_length": 0}]), 1, "output_length: an integer >= 1"),
    "ids missing": (as_lines([GOOD, {**GOOD, "hash_ids": None}]), 2, "hash_ids: a list"),
    "ids too few": (as_lines([GOOD, mooncake([1], 600)]), 2, "expected 2 ids of blocks"),
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
    "version true": ([{**HEADER, "version": True}], 1, "found true"),
    "header alone": ([HEADER], 1, "a request, found none"),
    "misspelt field": ([HEADER, {**TURN, "afer": 1}], 2, "found afer"),
    "no input": ([HEADER, {**TURN, "input": []}], 2, "input: a list of length >= 1"),
    "segment of nothing": ([HEADER, native(("a", 0), output=("b", 1))], 2, "found 0"),
    "both starts": ([HEADER, TURN, {**TURN, "after": 0}], 3, "either timestamp or after"),
    "too many tokens": ([HEADER, native(("a", 1 << 24), output=("b", 1))], 2, "found 16777217"),
    "backwards": ([HEADER, {**TURN, "timestamp": 2.5}, TURN], 3, "at least 2.5"),
}

OPTIONS = {
    "--model nothing": "expected one of deepseek-v3",
    "--format nothing": "expected one of auto, azure, bailian",
    "--page-size 100": "512-token blocks, or a multiple of it, found 100; use one of 1, 2, 4",
    "--device-tokens 5X": "a number such as 1M",
    "--device-pages 9": "trace.jsonl:1: expected a request of at most 9 pages",
    "--device-pages 9 --host-ratio -1": "--host-ratio",
    "--model deepseek-v3": "expected weights and a page of each pool within 72 GB",
    "--model llama-3.1-70b": "other --hardware or a --model with smaller weights\n",
    "--engine vllm?token_budget=3": "at least one page of 64 tokens",
    "--json /nowhere/out.json": "a file that can be written",
    "--unheard-of": "unknown option: --unheard-of",
    "--components full,nothing": "found 'full,nothing'",
    "--components full,swa=191": "expected at least 1088, a window in",
    "--components full=8,swa": "expected swa=TOKENS or mamba=STATES[:ON_HOST], found 'full=8'",
    "--components full,swa=8:9": "expected swa=TOKENS or mamba=STATES[:ON_HOST], found 'swa=8:9'",
    "--components full,mamba=8:": "expected a number such as",
    "--engine vllm?slots=3": "?token_budget=N&max_running=N or one of them, found 'slots=3'",
    "--model gpt-oss-120b --components full": "expected full,swa, for which gpt-oss-120b has",
    "--model gemma-3-27b --device-pages 10 --components full,swa=64": "--components full,swa=1088",
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


def test_directory_and_missing_file(tmp_path: Path, capsys: Capsys) -> None:
    assert "found a directory" in fails(capsys, "replay", str(tmp_path))
    assert "No such file" in fails(capsys, "replay", str(tmp_path / "absent"))
    assert "expected a name, found 'a\\x00b'" in fails(capsys, "replay", "a\0b")


def test_gzip_faults_name_the_line(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "trace.jsonl"
    whole = gzip.compress(b"".join(as_lines([GOOD] * 3)), mtime=0)
    path.write_bytes(whole[:-12])
    assert f"{path}:" in fails(capsys, "inspect", str(path))
    path.write_bytes(whole + b"more")
    assert f"{path}:4: expected readable data" in fails(capsys, "inspect", str(path))


def test_a_line_without_end_is_not_read_to_its_end(capsys: Capsys) -> None:
    assert "at most 8388608 bytes" in fails(capsys, "inspect", "/dev/zero")
