"""One record for each request: exact sums, the reasons of a miss, and the table of one request."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces.cli import main

from .rig import HEADER, Capsys, mooncake, native, random_tree, records, write

NS = 1_000_000_000


def times(arguments: tuple[str, ...]) -> list[str]:
    """Instants to the nanosecond are those of times that nothing fitted moves."""
    return [] if "hits" in arguments else ["--times", "pure-roofline", "--engine", "plain"]


def replayed(folder: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return records(folder, *words, *times(words))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Requests in a closed and an open loop whose prompts share every depth."""
    return str(random_tree(tmp_path_factory.mktemp("tree") / "tree.jsonl", 150))


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--device-pages", "90", "--host-pages", "60"],
        ["--device-pages", "90", "--host-pages", "60", "--write-policy", "write_back"],
        ["--device-pages", "90", "--host-ratio", "0", "--scheduler", "longest-prefix"],
        ["--components", "full,swa,mamba=40", "--device-pages", "90"],
        ["--mode", "hits", "--device-pages", "90", "--host-pages", "60"],
        ["--mode", "hits", "--components", "full,mamba", "--device-pages", "90"],
    ],
    ids=" ".join,
)
def test_records_add_up_to_the_report(options: list[str], tree: str, tmp_path: Path) -> None:
    found, rows = replayed(tmp_path, tree, "--check", "off", *options)
    assert [row["request"] for row in rows] == list(range(150))
    assert [row["line"] for row in rows] == list(range(2, 152))  # behind the header
    for share, part in (("whole", rows), ("steady", rows[75:])):
        for tier, tokens in found[share]["hit_tokens"].items():
            assert tokens == sum(row["hit_tokens"][tier] for row in part)
        for key in ("input", "computed", "ceiling", "first_seen", "lost"):
            assert found[share][f"{key}_tokens"] == sum(row[f"{key}_tokens"] for row in part), key
    for row in rows:
        hit = sum(row["hit_tokens"].values())
        assert hit + row["computed_tokens"] == row["input_tokens"]
        assert row["first_seen_tokens"] + row["ceiling_tokens"] == row["input_tokens"]
        if row["hit_ended_by"] in ("complete", "first_seen"):
            assert row["lost_tokens"] == 0
    if found["config"]["mode"] == "timed":
        _check_times(found, rows)


def _check_times(found: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    latency = found["latency_s"]
    for name in ("ttft", "queue", "load", "compute"):
        times = np.array([row[f"{name}_ns"] for row in rows])
        points = np.percentile(times, (50, 90, 99), method="inverted_cdf") / NS
        assert [latency[name][key] for key in ("p50", "p90", "p99")] == points.tolist()
        assert latency[name]["mean"] == times.mean() / NS
    for row in rows:
        assert row["queue_ns"] + row["load_ns"] + row["compute_ns"] == row["ttft_ns"]
        assert row["arrival_ns"] + row["ttft_ns"] <= row["finish_ns"]
    assert latency["makespan"] == max(row["finish_ns"] for row in rows) / NS
    assert found["output"]["tokens"] == sum(row["output_tokens"] for row in rows)
    assert sum(found["refused"].values()) == sum(row["refusals"] for row in rows)
    assert found["preempted"] == sum(row["preemptions"] for row in rows)


def test_what_a_preempted_request_left_was_in_the_cache(tmp_path: Path) -> None:
    """Request 4 asks for a part of the answer of request 1, which is preempted, loses it, and
    waits behind request 4."""
    path = write(
        tmp_path / "trace.jsonl",
        HEADER,
        native(("a", 64), output=("b", 400), timestamp=0),
        native(("c", 64), output=("d", 200), timestamp=2100),
        native(("a", 64), ("b", 256), output=("e", 200), timestamp=2101),
        native(("a", 64), output=("b", 100), timestamp=2102),
        native(("c", 64), ("d", 192), output=("f", 1), timestamp=2152),
    )
    sizes = ["--device-pages", "11", "--host-ratio", "0", "--scheduler", "longest-prefix"]
    _, rows = replayed(tmp_path, str(path), *sizes)
    assert rows[1]["preemptions"] == 1
    assert rows[1]["finish_ns"] > rows[4]["finish_ns"]
    assert rows[4]["hit_tokens"]["device"] == 128
    assert rows[4]["hit_ended_by"] == "evicted"
    assert rows[4]["last_seen_in_request"] == 1


def test_a_page_that_is_still_computed_is_not_ready(tmp_path: Path) -> None:
    alike = (mooncake([1, 2, 3], timestamp=1) for _ in range(2))
    path = write(tmp_path / "trace.jsonl", mooncake([9]), *alike)  # the pass of the first goes on
    _, rows = replayed(tmp_path, str(path), "--page-size", "512")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "not_ready"]
    assert rows[2]["lost_tokens"] == 1024
    _, rows = replayed(tmp_path, str(path), "--page-size", "512", "--mode", "hits")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "complete"]
    assert "ttft_ns" not in rows[0]


def why(capsys: Capsys, *arguments: str) -> dict[str, str]:
    """The rows of `--why`."""
    capsys.readouterr()
    assert main(["replay", *arguments, *times(arguments)]) == 0
    return dict(re.findall(r"^ *(\S.*?)  +(\S.*?) *$", capsys.readouterr().out, re.MULTILINE))


def test_a_miss_says_whose_page_was_evicted_and_why_prints_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = write(
        tmp_path / "trace.jsonl",
        mooncake([1, 2], timestamp=0),
        mooncake([3, 4, 5], timestamp=5000),
        mooncake([1, 2, 6], timestamp=9000),
    )
    sizes = ["--page-size", "512", "--device-pages", "4"]
    _, rows = replayed(tmp_path, str(path), *sizes, "--host-ratio", "0")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "evicted"]
    assert rows[2]["last_seen_in_request"] == 0
    assert (rows[2]["hit_tokens"]["device"], rows[2]["lost_tokens"]) == (512, 512)
    options = [*sizes, "--host-ratio", "0", "--why", "2"]
    told = why(capsys, str(path), *options)
    assert (told["line"], told["arrival"], told["ceiling tokens"]) == ("3", "9.000 s", "1,024")
    assert told["hit tokens"] == "device 512, host 0, storage 0"
    assert (told["hit ended by"], told["last seen in request"]) == ("evicted", "0")
    assert (told["computed tokens"], told["lost tokens"]) == ("1,024", "512")
    *parts, first = (float(told[name][:-2]) for name in ("queue", "load", "compute", "ttft"))
    assert abs(sum(parts) - first) < 0.003
    assert first > 0
    counted = why(capsys, str(path), *options, "--mode", "hits")
    assert (counted["hit ended by"], "queue" in counted) == ("evicted", False)
    # with room on host the page is lost to nobody
    _, rows = replayed(tmp_path, str(path), *sizes, "--host-pages", "8")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "complete"]
    assert rows[2]["hit_tokens"]["host"] > 0
    assert rows[2]["load_ns"] > 0
    # on host alone it is evicted from there
    sizes[-1] = "3"
    _, rows = replayed(tmp_path, str(path), *sizes, "--host-pages", "3")
    assert rows[2]["hit_ended_by"] == "evicted"


def test_speed_divides_the_times_of_the_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.jsonl", *(mooncake([n], timestamp=1000 * n) for n in range(3)))
    found, rows = replayed(tmp_path, str(path), "--speed", "2.5")
    assert [row["arrival_ns"] for row in rows] == [0, 400_000_000, 800_000_000]
    assert found["config"]["speed"] == 2.5
    turns = write(
        tmp_path / "turns.jsonl",
        HEADER,
        native(("a", 64), output=("b", 2)),
        native(("a", 64), ("c", 9), output=("d", 2), after=0, delay=3000),
    )
    _, rows = replayed(tmp_path, str(turns), "--speed", "3")
    assert rows[1]["arrival_ns"] - rows[0]["finish_ns"] == NS
