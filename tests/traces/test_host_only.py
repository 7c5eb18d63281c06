"""`hicache size --host-only`: its points are those of a replay; words and picture follow them."""

from __future__ import annotations

import json
import re
import sys
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main, parse
from traces.commands.size import Options
from traces.formats.base import Trace
from traces.replaying.builtin import opened
from traces.replaying.settings import Settings, resolve
from traces.results.record import Spread
from traces.sizing import host_only
from traces.sweeping import points, words
from traces.sweeping.picture import print_points
from traces.sweeping.points import Point, with_host
from traces.sweeping.svg import Line, Panel, apart, svg, ticks
from traces.sweeping.words import recommended

from .rig import Capsys, Patch, mooncake, write

SVG = "{http://www.w3.org/2000/svg}"
SMALL = ["--device-pages", "100"]
HOST = ["size", "--host-only"]


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("turns") / "turns.jsonl")
    assert main(["generate", "multiturn", "--clients", "4", "--rounds", "5", "-o", path]) == 0
    return path


def shown(path: Path, *arguments: str) -> dict[str, Any]:
    out = path / "out.json"
    assert main([*HOST, *arguments, "--json", str(out)]) == 0
    found: dict[str, Any] = json.loads(out.read_text())
    return found


@pytest.mark.one_in(64)
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_point_is_what_a_replay_with_that_size_measures(
    jobs: str, turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    picture = tmp_path / "picture.svg"
    sizes = ["--host-bytes", "3.2GB,0,0.8GB", "--jobs", jobs, "-o", str(picture)]
    found = shown(tmp_path, turns, *SMALL, *sizes)
    printed = capsys.readouterr().out
    assert found["complete"]
    assert 0.8e9 < found["recommended_host_bytes"] <= 3.2e9
    assert [point["host_bytes"] for point in found["points"]] == [0, 800_000_000, 3_200_000_000]
    for point in found["points"]:
        size = ["--host-bytes", str(point["host_bytes"])]
        if not point["host_bytes"]:
            size = ["--host-ratio", "0"]
        out = tmp_path / "replay.json"
        assert main(["replay", turns, *SMALL, *size, "--check", "off", "--json", str(out)]) == 0
        whole = json.loads(out.read_text())
        assert point["digest"] == whole["digest"]
        assert point["hit_rate"] == whole["whole"]["hit_rate"]
        assert point["ttft_s"] == whole["latency_s"]["ttft"]
        assert point["host_pages"] == whole["config"]["host_pages"]
    rates = [point["hit_rate"] for point in found["points"]]
    assert rates == sorted(rates)
    assert rates[-1] > rates[0]
    assert "3.2 GB of host memory raise the hit rate from" in " ".join(printed.split())
    assert max(map(len, printed.splitlines())) <= 80
    ElementTree.parse(picture)


@pytest.mark.one_in(16)
def test_the_compute_that_host_memory_saves_is_what_passes_take_without_it(tmp_path: Path) -> None:
    """Requests that are alone take their passes one by one, so their times can be subtracted."""
    prompts = [list(range(20)), list(range(30, 50)), list(range(10))]
    lines = (mooncake(ids, timestamp=20_000 * at) for at, ids in enumerate(prompts))
    path = str(write(tmp_path / "trace.jsonl", *lines))
    sizes = ["--device-pages", "200", "--token-budget", "16K"]
    found = shown(tmp_path, path, *sizes, "--host-bytes", "0,6GB", "--jobs", "1")
    without, saved = (point["saved_compute_s"] for point in found["points"])
    assert without == 0
    passes_ns = []
    for ratio in ("0", "4"):
        rows = tmp_path / "rows.jsonl"
        arguments = [*sizes, "--host-ratio", ratio, "--requests", str(rows)]
        assert main(["replay", path, *arguments]) == 0
        passes_ns.append([json.loads(row)["compute_ns"] for row in rows.read_text().splitlines()])
    assert passes_ns[0][:2] == passes_ns[1][:2]
    assert saved == (passes_ns[0][2] - passes_ns[1][2]) / 1e9 > 0


@pytest.mark.one_in(32)
def test_the_files_that_were_written_are_named_with_the_report(
    turns: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [*HOST, turns, *SMALL, "--host-bytes", "0,3.2GB", "--jobs", "1"]
    assert main([*given, "-o", "a.svg", "--json", "b.json"]) == 0
    assert capsys.readouterr().out.endswith("\nwrote a.svg, b.json\n")
    assert main([*given, "-o", "-", "--json", "b.json"]) == 0
    printed = capsys.readouterr()
    assert printed.out.endswith("</svg>\n")
    assert printed.err.endswith("\nwrote b.json\n")
    assert main(given) == 0
    assert "wrote" not in capsys.readouterr().out


def test_hits_mode_has_no_times_and_one_panel(turns: str, tmp_path: Path) -> None:
    picture = tmp_path / "picture.svg"
    sizes = ["--host-bytes", "0,3.2GB", "--jobs", "1", "-o", str(picture)]
    found = shown(tmp_path, turns, *SMALL, "--mode", "hits", *sizes)
    assert [point["ttft_s"] for point in found["points"]] == [None, None]
    texts = ElementTree.parse(picture).iter(f"{SVG}text")
    heads = [text.text for text in texts if text.get("class") == "head"]
    assert heads == ["prompt tokens that hit (%)"]


@pytest.mark.one_in(16)
def test_options_of_the_host_pool_do_not_hinder_the_point_without_one(
    turns: str, tmp_path: Path
) -> None:
    options = ["--write-policy", "write_back", "--exclusive", "--host-bandwidth", "0.5x"]
    sizes = ["--host-bytes", "0,3.2GB", "--jobs", "1"]
    found = shown(tmp_path, turns, *SMALL, *options, *sizes)
    assert found["config"]["write_policy"] == "write_back"
    assert found["points"][1]["host_hit_rate"] > found["points"][0]["host_hit_rate"] == 0


def test_ctrl_c_keeps_the_points_that_are_done(
    turns: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    measured = points.measure

    def once(options: Any, trace: Any, size: int, progress: Any) -> Point:
        if size:
            raise KeyboardInterrupt
        return measured(options, trace, size, progress)

    monkeypatch.setattr(points, "measure", once)
    out, picture = tmp_path / "out.json", tmp_path / "p.svg"
    files = ["--json", str(out), "-o", str(picture)]
    assert main([*HOST, turns, *SMALL, "--host-bytes", "0,1GB,2GB", "--jobs", "1", *files]) == 130
    found = json.loads(out.read_text())
    assert found["complete"] is False
    assert [point["host_bytes"] for point in found["points"]] == [0]
    assert "interrupted: 1 of 3 sizes are done" in capsys.readouterr().err
    ElementTree.parse(picture)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--host-bytes", "0,many"], "expected bytes such as 512GB"),
        (["--host-bytes", ",".join(map(str, range(65)))], "expected at most 64 sizes, found 65"),
        (["--host-ratio", "2"], "--host-ratio"),
        (["--compare-eviction", "fifo"], "--compare-eviction"),
        (["-o", "trace.jsonl"], "--output: expected another file than the trace"),
        (["-o", "-", "--json", "-"], "--json: expected a file"),
        (["-o", "pic.png"], "--output: expected a name that ends in .svg, found pic.png"),
        (["--device-pages", "1", "--jobs", "2"], "give --device-pages 10"),
        (["--jobs", "0"], "expected 1 to 1024"),
        (["--draws", "2"], "--draws: --host-only replays each size once"),
        (["--points", "p.jsonl"], "--points: --host-only replays each size once"),
        (["--executor", "ray"], "--executor: --host-only replays each size once"),
        (["--storage", "sim:"], "--storage: --host-only compares sizes of host memory alone"),
        (["--replicas", "2"], "--replicas: --host-only compares sizes of host memory alone"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_options_that_cannot_be(
    options: list[str], word: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "trace.jsonl", mooncake([1], output_length=100))
    try:
        code = main([*HOST, "trace.jsonl", *options])
    except SystemExit as end:
        code = int(str(end.code))
    assert code == 2
    assert word in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["trace.jsonl"]


def point(size_gb: float, hit: float, p90: float, **other: Any) -> Point:
    figures: dict[str, Any] = {
        "host_bytes": round(size_gb * 1e9),
        "host_pages": 1,
        "host_tokens": 64,
        "requests": 9,
        "device_hit_rate": 0.1,
        "host_hit_rate": hit - 0.1,
        "hit_rate": hit,
        "ceiling_rate": 0.6,
        "ttft_s": Spread(p90 / 2, p90 / 3, p90, p90 * 1.5, p90 * 2),
        "queueing_share": 0.1,
        "offered": 1.0,
        "overloaded": False,
        "saved_compute_s": 1.0,
        "digest": "",
        "wall_s": 1.0,
    }
    return Point(**figures | other)


def sentence(*points: Point, turns: str) -> str:
    return " ".join(words.conclusions(*resolved(turns), points))


def resolved(turns: str) -> tuple[Trace, Settings]:
    _, record = parse([*HOST, turns])
    assert isinstance(record, Options)
    replay, trace = opened(record.replay)
    return trace, resolve(with_host(replay, 10**9), trace)[0]


@pytest.mark.one_in(16)
def test_the_sentence_says_how_much_is_enough(turns: str) -> None:
    larger = point(512, 0.412, 1.6), point(1024, 0.412, 1.6)
    text = sentence(point(0, 0.24, 3.1), point(256, 0.35, 2.0), *larger, turns=turns)
    assert text.startswith(
        "About 420 GB of host memory for llama-3.1-8b on 1 x h100 are enough for nine tenths of "
        "what host memory can add to the hits: a hit rate of 39.5 %. Of the sizes tried, 512 GB of "
        "host memory raise the hit rate from 24.0 % to 41.2 % and cut the p90 time to first token "
        "from 3.10 to 1.60 s; 1.024 TB add 0.0 points to that."
    )
    assert "No cache can hit more than 60.0 %" in text
    grows = sentence(point(0, 0.2, 3), point(64, 0.3, 4), turns=turns)
    assert "raise the p90 time to first token from 3.00 to 4.00 s. The hits still grow" in grows
    assert "a hit rate of 56.0 %: try --host-bytes 128GB,256GB." in grows
    whole = sentence(point(0, 0.2, 3), point(64, 0.599, 1), turns=turns)
    assert "nearly all that this trace can hit" in whole
    nothing = sentence(point(0, 0.2, 3), point(64, 0.203, 3), turns=turns)
    assert "stays within 0.5 points of 20.0 %: more of it buys hardly anything here" in nothing
    held = [point(size, 0.6, 3, device_hit_rate=0.6) for size in (0, 64)]
    assert "more of it buys hardly anything here" in sentence(*held, turns=turns)
    assert "replay at least two" in sentence(point(0, 0.2, 3), turns=turns)
    assert "No size was replayed to its end" in sentence(turns=turns)
    base = sentence(point(64, 0.2, 3), point(128, 0.3, 3), turns=turns)
    assert "128 GB of host memory, compared with 64 GB, raise the hit rate" in base
    assert "leave the p90 time to first token at 3.00 s" in base
    new = [point(size, 0.0, 3, device_hit_rate=0.0, ceiling_rate=0.0) for size in (0, 64)]
    assert sentence(*new, turns=turns).startswith("Nothing in this trace repeats")
    assert "hit rate" not in sentence(*new, turns=turns)
    less = sentence(point(64, 0.58, 3), point(128, 0.59, 3), turns=turns)
    assert "64 GB of host memory for llama-3.1-8b on 1 x h100, the smallest size tried" in less
    assert "try --host-bytes 16GB,32GB." in less


def test_the_recommended_size_does_not_depend_on_the_sizes_tried() -> None:
    """The hits grow with the logarithm of the size up to 4 TB."""
    sizes = (0, 256, 512, 1024, 2048, 4096, 8192)
    curve = [point(size, 0.1 + 0.1 * at, 3) for at, size in enumerate(sizes[:6])]
    curve.append(point(sizes[6], 0.6, 3))
    found = recommended(curve[:6])
    assert found == recommended(curve) == 2_900_000_000_000  # half a doubling above 2,048 GB
    several = [curve[at] for at in (0, 3, 4, 5)]
    assert recommended(several) == found
    assert recommended(curve[1:6]) == found  # the hits of the device are the same
    assert recommended(curve[:5]) is None  # still grows, and is not enough yet
    assert recommended([]) is None
    assert recommended(curve[5:]) == curve[5].host_bytes  # or less


def test_overloaded_points_are_named_with_a_speed(turns: str) -> None:
    slow = point(0, 0.2, 90, overloaded=True, offered=2.3)
    text = sentence(slow, point(64, 0.4, 3), turns=turns)
    assert "With 1 of 2 sizes the trace offers more than the machine can do (up to 2.3 x)" in text
    assert "try --speed 0.3" in text
    assert "With every size" in sentence(slow, replace(slow, host_bytes=10**9), turns=turns)


@pytest.mark.one_in(16)
def test_without_a_trace_the_workload_is_announced_and_the_sizes_fit_it(
    tmp_path: Path, capsys: Capsys
) -> None:
    found = shown(tmp_path, "--mode", "hits", "--jobs", "1")
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("No trace was given, so this is the built-in workload: 128 conv")
    assert "and the largest host memory below for all." in text
    sizes = [point["host_bytes"] for point in found["points"]]
    assert sizes[-1] <= 128 * 10**9
    assert sizes[0] / 1e9 < found["recommended_host_bytes"] / 1e9 < sizes[-1] / 1e9
    assert host_only.SIZES[-1] == 10**12


@pytest.mark.parametrize("time_s", [0.5, 126.5, 20_140.0])
def test_the_table_fits_80_columns_whatever_the_times(time_s: float, capsys: Capsys) -> None:
    points = [point(0, 0.1, time_s), point(64, 0.6, time_s)]
    print_points(points, sys.stdout)
    rows = [row for row in capsys.readouterr().out.splitlines() if row.strip()]
    assert max(map(len, rows)) <= 80
    assert len(rows) == 6
    assert "bars end at the ceiling" in rows[0]
    figures, ceiling = (row.split()[-1] for row in rows[-2:])
    assert set(ceiling) == {"-"}
    assert set(figures) == {"#", "+"}
    assert len(figures) == len(ceiling) >= 10


@pytest.mark.parametrize("most", [1e-4, 0.7, 1, 37.4, 99, 100, 101, 4096, 3.3e5])
def test_ticks_are_round_and_reach_the_largest_value(most: float) -> None:
    found = ticks(most)
    assert found[0] == 0
    assert found[-2] < most <= found[-1] * (1 + 1e-9)
    assert 3 <= len(found) <= 8
    steps = {round(b - a, 12) for a, b in pairwise(found)}
    assert len(steps) == 1
    assert ticks(0) == [0, 1]


def test_labels_do_not_cover_each_other() -> None:
    assert apart([100, 40, 101, 105]) == [100, 40, 115, 130]


def test_a_picture_is_xml_whatever_a_trace_is_called() -> None:
    panel = Panel("rate (%)", "GB", [0, 1, 2], [Line("a < b & c", [0, 50, 99], "a")])
    text = svg("<script>\x1b[2J", ['"note" & \u202e more ' * 12], [panel, panel])
    root = ElementTree.fromstring(text)
    assert root.tag == f"{SVG}svg"
    assert not list(root.iter(f"{SVG}script"))
    assert "\x1b" not in text
    assert "\u202e" not in text
    names = [one.text for one in root.iter(f"{SVG}text")]
    assert names.count("a < b & c") == 2
    assert "prefers-color-scheme:dark" in text
    places = [line.get("points") for line in root.iter(f"{SVG}polyline")]
    assert all(place and len(place.split()) == 3 for place in places)


def test_the_picture_of_the_docs_shows_the_table_of_the_docs() -> None:
    docs = Path(__file__).parents[2] / "docs"
    text = (docs / "figures.md").read_text().split("## What host memory buys")[1]
    rows = re.findall(
        r"^\| ([\d.]+) ([GT])B \| (.*) \|$", text.split("llama-3.1-70b")[0], re.MULTILINE
    )
    cells = [[float(cell.split()[0]) for cell in row[2].split(" | ")] for row in rows]
    sizes = [float(row[0]) * (1000 if row[1] == "T" else 1) for row in rows]
    root = ElementTree.parse(docs / "pictures" / "host-memory.svg").getroot()
    lines = [line.get("points", "").split() for line in root.iter(f"{SVG}polyline")]
    assert len(lines) == 6
    # ceiling, device + host, device; then p90, mean, p50
    for line, column in zip((lines[1], lines[2], *lines[3:]), (2, 0, 5, 3, 4), strict=True):
        assert len(line) == len(rows)
        points = [tuple(map(float, place.split(","))) for place in line]
        _check_straight([point[0] for point in points], sizes)
        _check_straight([point[1] for point in points], [row[column] for row in cells])


def _check_straight(places: list[float], values: list[float]) -> None:
    """The places of a line are the values, scaled and moved."""
    low, high = values.index(min(values)), values.index(max(values))
    scale = (places[high] - places[low]) / ((values[high] - values[low]) or 1)
    for place, value in zip(places, values, strict=True):
        assert place == pytest.approx(places[low] + scale * (value - values[low]), abs=0.5)
