"""Pinned prefixes, a time to live and the later eviction policies in `hicache replay`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .rig import Capsys, replayed

HITS = ("--mode", "hits", "--check", "every", "--page-size", "64")


def write(path: Path, *requests: dict[str, Any]) -> str:
    """A trace of these requests, a second apart unless they say otherwise."""
    lines = [{"format": "hicache-trace", "version": 1}, *requests]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def request(second: float, *parts: tuple[str, int]) -> dict[str, Any]:
    return {"timestamp": second * 1000, "input": [list(part) for part in parts], "output": ["a", 1]}


@pytest.fixture
def apart(tmp_path: Path) -> str:
    """A system prompt, ten others that fill the cache, and that prompt again a minute later."""
    others = [request(1 + n, (f"other{n}", 256)) for n in range(10)]
    system = ("system", 256)
    again = request(60, system, ("second", 64))
    return write(tmp_path / "t.jsonl", request(0, system, ("first", 64)), *others, again)


def test_a_pinned_prefix_is_there_a_minute_later(apart: str, tmp_path: Path) -> None:
    small = (apart, *HITS, "--device-pages", "16")
    assert replayed(tmp_path, *small)["whole"]["hit_tokens"]["device"] == 0
    found = replayed(tmp_path, *small, "--pin", "0:256")
    assert found["whole"]["hit_tokens"]["device"] == 256
    assert found["config"]["pins"] == [{"request": 0, "pages": 4, "tier": "device"}]
    host = (*small, "--host-pages", "16")
    assert replayed(tmp_path, *host)["whole"]["hit_tokens"]["host"] == 0
    assert replayed(tmp_path, *host, "--pin", "0:256@host")["whole"]["hit_tokens"]["host"] == 256


@pytest.mark.parametrize("mode", ["hits", "timed"])
def test_what_was_not_used_for_the_ttl_is_gone(apart: str, mode: str, tmp_path: Path) -> None:
    large = (apart, "--mode", mode, "--check", "every", "--page-size", "64", "--device-pages", "99")
    assert replayed(tmp_path, *large)["whole"]["hit_tokens"]["device"] == 256
    assert replayed(tmp_path, *large, "--ttl", "2m")["whole"]["hit_tokens"]["device"] == 256
    assert replayed(tmp_path, *large, "--ttl", "30s")["whole"]["hit_tokens"]["device"] == 0
    kept = replayed(tmp_path, *large, "--ttl", "30s", "--pin", "0:256")
    assert kept["whole"]["hit_tokens"]["device"] == 256
    assert kept["config"]["ttl_s"] == 30
    if mode == "timed":
        slow = replayed(tmp_path, *large, "--ttl", "90s", "--speed", "0.5")
        assert slow["whole"]["hit_tokens"]["device"] == 0
        assert "90 s are 45 s of the trace at --speed 0.5" in slow["warnings"][-1]


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (("--pin", "0"), "expected REQUEST:TOKENS"),
        (("--pin", "0:256@disk"), "expected REQUEST:TOKENS"),
        (("--pin", "99:256"), "expected a request from 0 to 11, found 99"),
        (("--pin", "0:10"), "expected 64 to 320 tokens"),
        (("--pin", "0:320,1:256,2:256,3:256"), "beside the largest request"),
        (("--pin", "0:256@host"), "expected at most 0 pages on host"),
        (("--ttl", "10"), "expected a time with its unit"),
        (("--pin", "0:256", "--replicas", "2"), "expected one replica, found several"),
    ],
)
def test_a_want_that_cannot_be_is_refused_in_one_line(
    apart: str, argv: tuple[str, ...], words: str, capsys: Capsys
) -> None:
    assert main(["replay", apart, *HITS, "--device-pages", "16", *argv]) == 2
    assert words in capsys.readouterr().err


def test_without_times_of_arrival_nothing_can_expire(tmp_path: Path, capsys: Capsys) -> None:
    follows = {"after": 0, "delay": 5000, "input": [["x", 64]], "output": ["b", 1]}
    path = write(tmp_path / "t.jsonl", request(0, ("x", 64)), follows)
    assert main(["replay", path, *HITS, "--device-pages", "16", "--ttl", "1s"]) == 2
    assert "found some that follow others; use --mode timed" in capsys.readouterr().err
