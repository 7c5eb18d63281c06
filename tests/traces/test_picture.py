"""What host memory buys: `hicache sweep` over sizes of host memory alone, its table and picture."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from traces.cli import main
from traces.sweeping.svg import Line, Panel, svg

from .rig import Capsys, Patch

SVG = "{http://www.w3.org/2000/svg}"
SMALL = ["--device-pages", "100", "--jobs", "1"]


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("turns") / "turns.jsonl")
    assert main(["generate", "multiturn", "--clients", "4", "--rounds", "5", "-o", path]) == 0
    return path


def texts(picture: Path, kind: str) -> list[str | None]:
    found = ElementTree.parse(picture).iter(f"{SVG}text")
    return [text.text for text in found if text.get("class") == kind]


def test_sizes_of_host_memory_are_shown_in_order_with_bars_and_drawn(
    turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    picture, out = tmp_path / "picture.svg", tmp_path / "out.json"
    given = [turns, *SMALL, "--host-bytes", "3.2GB,0,0.8GB", "--slo", "ttft=30ms"]
    assert main(["sweep", *given, "--picture", str(picture), "--json", str(out)]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert "".join(printed.split()).endswith(f"wrote{out},{picture}")
    found = {one["point"]["host_bytes"]: one for one in json.loads(out.read_text())["points"]}
    shown = [row.split() for row in printed.splitlines() if " GB " in row and " % " in row]
    assert [row[0] for row in shown] == ["0", "0.8", "3.2"]
    for row, size in zip(shown, sorted(found), strict=True):
        assert float(row[6]) == round(found[size]["hit_rate"] * 100, 1)
        assert float(row[4]) == round(found[size]["tier_rates"][1] * 100, 1)
        assert float(row[10]) == round(found[size]["ttft_p90_s"], 2)
        assert float(row[11]) == round(found[size]["goodput_requests_per_s"], 2)
    assert "+" not in shown[0][-1]
    assert len(shown[2][-1]) > len(shown[0][-1])
    assert texts(picture, "note") == ["20 requests of turns.jsonl, llama-3.1-8b on 1 x h100"]
    assert texts(picture, "head") == ["prompt tokens that hit (%)", "time to first token (s)"]


def test_a_picture_of_hits_has_one_panel_and_the_place_of_stdout(
    turns: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ["sweep", turns, *SMALL, "--host-bytes", "0,3.2GB", "--mode", "hits"]
    assert main([*given, "--picture", "-", "--json", "b.json"]) == 0
    printed = capsys.readouterr()
    Path("p.svg").write_text(printed.out)
    assert printed.err.endswith("\nwrote b.json\n")
    assert texts(Path("p.svg"), "head") == ["prompt tokens that hit (%)"]
    assert "one request at a time" in str(texts(Path("p.svg"), "note"))


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
