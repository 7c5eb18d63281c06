"""Pinned prefixes, a time to live and the later eviction policies in `hicache replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .rig import HEADER, native, replayed, write

HITS = ("--mode", "hits", "--check", "every", "--page-size", "64")


def request(second: float, *parts: tuple[str, int]) -> dict[str, Any]:
    return native(*parts, output=("a", 1), timestamp=second * 1000)


@pytest.fixture
def apart(tmp_path: Path) -> str:
    """A system prompt, ten others that fill the cache, and that prompt again a minute later."""
    others = [request(1 + n, (f"other{n}", 256)) for n in range(10)]
    system = ("system", 256)
    again = request(60, system, ("second", 64))
    return str(
        write(tmp_path / "t.jsonl", HEADER, request(0, system, ("first", 64)), *others, again)
    )


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
