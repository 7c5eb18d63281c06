"""Hits as an engine counts them: `hicache replay --mode hits --engine`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .rig import HEADER, Capsys, fails, mooncake, native, write

SIZE = ["--page-size", "512", "--mode", "hits"]


def hits(folder: Path, lines: list[dict[str, Any]], *more: str) -> list[int]:
    """The hit tokens of each request of a trace."""
    trace, rows = write(folder / "trace.jsonl", *lines), folder / "rows.jsonl"
    given = ["replay", str(trace), *SIZE, "--check", "every", "--requests", str(rows), *more]
    assert main(given) == 0
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    return [sum(one["hit_tokens"].values()) for one in found]


def test_the_last_token_of_a_prompt_is_computed(tmp_path: Path, capsys: Capsys) -> None:
    again = [mooncake([1, 2]), mooncake([1, 2], timestamp=1), mooncake([1, 2, 3], 1100)]
    again[2]["timestamp"] = 2
    pool = ["--device-pages", "20"]
    assert hits(tmp_path, again, *pool) == [0, 1024, 1024]
    assert hits(tmp_path, again, *pool, "--engine", "vllm") == [0, 512, 1024]
    assert "hits: what vllm@" in capsys.readouterr().out


def test_a_part_of_a_block_does_not_hit(tmp_path: Path) -> None:
    again = [mooncake([1, 2], 600), mooncake([1, 2], 600, timestamp=1)]
    pool = ["--device-pages", "20"]
    assert hits(tmp_path, again, *pool) == [0, 600]
    assert hits(tmp_path, again, *pool, "--engine", "vllm") == [0, 512]


def test_what_is_generated_takes_room(tmp_path: Path) -> None:
    lines = [
        mooncake([8, 9]),
        mooncake([1], output_length=1500, timestamp=1),
        mooncake([8, 9, 4], 1100, timestamp=2),
    ]
    pool = ["--device-pages", "5"]
    assert hits(tmp_path, lines, *pool) == [0, 0, 1024]
    assert hits(tmp_path, lines, *pool, "--engine", "vllm") == [0, 0, 512]


def test_requests_of_one_pass_hit_each_other(tmp_path: Path) -> None:
    at_once = [mooncake([1, 2 + place], 1024, timestamp=0) for place in range(3)]
    engine = ["--engine", "vllm", "--concurrency", "3", "--device-pages", "40"]
    assert hits(tmp_path, at_once, *engine) == [0, 512, 512]
    # the first fills a pass: the others come when its first blocks are there
    assert hits(tmp_path, at_once, *engine, "--token-budget", "1024") == [0, 512, 512]


def test_the_last_that_was_admitted_is_preempted(tmp_path: Path) -> None:
    lines = [mooncake([place], 512, output_length=1200, timestamp=0) for place in range(3)]
    out = tmp_path / "out.json"
    engine = ["--engine", "vllm", "--concurrency", "3", "--device-pages", "5"]
    assert hits(tmp_path, lines, *engine, "--json", str(out)) == [0, 0, 0]
    document = json.loads(out.read_text())
    assert document["preempted"] > 0
    assert document["served_requests"] == 3
    assert document["config"]["hits_of"].startswith("vllm@")


def test_a_turn_waits_for_the_one_before_it(tmp_path: Path) -> None:
    turns = [
        HEADER,
        native(("a", 600), output=("b", 600)),
        native(("c", 600), output=("d", 1)),
        native(("a", 600), ("b", 600), ("e", 10), output=("f", 1), after=0, delay=0),
    ]
    engine = ["--engine", "vllm", "--concurrency", "2", "--device-pages", "40"]
    assert hits(tmp_path, turns, *engine) == [0, 0, 1024]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--concurrency", "2"], "--concurrency: expected --mode timed or --engine"),
        (["--engine", "sglang", "--concurrency", "2"], "--concurrency: expected 1 in hits mode"),
        (["--engine", "vllm", "--replicas", "2"], "--engine: expected --mode timed or one replica"),
        (["--engine", "vllm", "--device-pages", "2", "--skip-too-large"], "expected"),
    ],
)
def test_what_has_no_such_passes_is_refused(
    tmp_path: Path, capsys: Capsys, more: list[str], expected: str
) -> None:
    trace = write(tmp_path / "trace.jsonl", mooncake([1, 2, 3]))
    assert expected in fails(capsys, "replay", str(trace), *SIZE, *more)
