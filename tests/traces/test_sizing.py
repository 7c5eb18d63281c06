"""What a replay prints and writes about sizes is what it runs with, on a rank and in total."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

from .rig import Capsys, mooncake, write

Replayed = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600), mooncake([1, 2], 700)))


@pytest.fixture
def replayed(trace: str, tmp_path: Path, capsys: Capsys) -> Replayed:
    """Runs a replay with these options; returns its report, in single spaces, and its document."""

    def run(arguments: str, path: str = trace) -> tuple[str, dict[str, Any]]:
        out = tmp_path / "out.json"
        assert main(["replay", path, *arguments.split(), "-v", "--json", str(out)]) == 0
        return " ".join(capsys.readouterr().out.split()), json.loads(out.read_text())

    return run


def test_sizes_are_printed_on_a_rank_and_in_total(replayed: Replayed) -> None:
    report, found = replayed("--tp 8 --device-pages 6669 --host-pages 13338")
    assert "13,338 pages, 853,632 tokens, 14.0 GB a rank, 111.9 GB on 8 ranks (as given)" in report
    assert "llama-3.1-8b, 1,048,576 bytes a page per rank, bf16" in report
    assert "weights 2.0 GB a rank, 16.1 GB on 8 ranks, bf16" in report
    full, config = found["components"]["full"], found["config"]
    assert full["page_bytes"] == 1 << 20
    assert full["page_bytes_total"] == 8 << 20
    assert full["pool_bytes_per_rank"] == {"device": 6669 << 20, "host": 13338 << 20}
    assert full["pool_bytes_total"] == {"device": 6669 << 23, "host": 13338 << 23}
    assert config["weight_bytes_total"] == 2 * 8_030_261_248 == 8 * config["weight_bytes_per_rank"]
    for way in ("d2h", "h2d"):
        moved = found["transfers"][way]
        assert moved["bytes"] == moved["bytes_per_rank"] == moved["bytes_total"] / 8
    assert found["transfers"]["d2h"]["bytes"] == full["backed_up"] << 20 > 0


def test_host_bytes_are_the_total_that_is_printed(replayed: Replayed) -> None:
    report, found = replayed("--tp 8 --host-bytes 140GB")
    assert "17.5 GB a rank, 140.0 GB on 8 ranks (as given)" in report
    assert 0 <= 140e9 - found["components"]["full"]["pool_bytes_total"]["host"] < 8 << 20
    report, _ = replayed("--host-bytes 4TiB --components full,swa")
    assert report.count("(its share of --host-bytes") == 2
    assert "4398" not in report  # one figure in one unit for one pool


@pytest.mark.parametrize(
    ("ratio", "pages", "rule"),
    [
        ("0.5", 50, "(0.5 x device)"),
        ("0.999", 100, "(0.999 x device)"),
        ("0.5 --write-policy write_back", 50, "(0.5 x device)"),
        ("1.5", 151, "(1.5 x device)"),
    ],
)
def test_a_ratio_is_what_runs_and_what_is_printed(
    ratio: str, pages: int, rule: str, replayed: Replayed
) -> None:
    report, found = replayed(f"--mode hits --device-pages 101 --host-ratio {ratio} --check every")
    assert found["config"]["host_pages"] == pages
    assert f"host {pages} pages" in report
    assert rule in report
