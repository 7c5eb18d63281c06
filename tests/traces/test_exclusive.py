"""An exclusive host tier: both tiers together hit what one LRU of their summed size hits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from traces.cli import main

from .rig import Capsys

EXCLUSIVE = ("--write-policy", "write_back", "--exclusive")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exclusive") / "turns.jsonl"
    words = ["multiturn", "--clients", "12", "--rounds", "6", "-o", str(path)]
    assert main(["generate", *words]) == 0
    return path


def hit_tokens(trace: Path, device_pages: int, host_pages: int, *options: str) -> dict[str, int]:
    """By tier."""
    out = trace.with_name("out.json")
    sizes = ["--device-pages", str(device_pages), "--host-pages", str(host_pages)]
    mode = ["--mode", "hits", "--page-size", "16", "--check", "sampled"]
    assert main(["replay", str(trace), *mode, *sizes, *options, "--json", str(out)]) == 0
    found: dict[str, int] = json.loads(out.read_text())["whole"]["hit_tokens"]
    return found


@pytest.mark.parametrize(
    ("device_pages", "host_pages"), [(250, 250), (400, 800), (800, 300), (250, 2500), (1200, 900)]
)
def test_both_tiers_hit_what_one_lru_of_their_summed_size_hits(
    trace: Path, device_pages: int, host_pages: int, capsys: Capsys
) -> None:
    one = hit_tokens(trace, device_pages + host_pages, 0)
    both = hit_tokens(trace, device_pages, host_pages, *EXCLUSIVE)
    assert both["device"] + both["host"] == one["device"] > 0
    assert both["host"] > 0
    capsys.readouterr()


@pytest.mark.parametrize(
    "options",
    [
        ["--host-pages", "100", "--exclusive"],
        ["--host-ratio", "0", "--write-policy", "write_back", "--exclusive"],
    ],
)
def test_exclusive_without_write_back_is_refused_in_one_line(
    trace: Path, options: list[str], capsys: Capsys
) -> None:
    assert main(["replay", str(trace), "--device-tokens", "64K", *options]) == 2
    said = capsys.readouterr().err
    assert said.startswith("hicache: --exclusive: expected a ")
    assert said.count("\n") == 1
