"""Measures the first command of the README (which machine to buy) and that of the study in
docs/sizing.md (what memory buys on one machine) on the conversation trace, and writes their figures
into both pages and the picture. `python -m tests.bench.headline FOLDER` does all of it (FOLDER has
files on the way):

    docs/measured/buy.json, size.json   what the commands printed, and the figures of replays
    README.md, docs/sizing.md           the text between the two marks, made from these files
    docs/pictures/report.png            two charts of the report of the study (with chromium)

Replays that a killed run had done are kept (--points). tests/test_headline compares all of this.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

from traces.cli import main
from traces.deciding.measured import median
from traces.sweeping.identity import decisions

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT.parent / "shared/traces/mooncake_conversation.jsonl"
MEASURED = ROOT / "docs/measured/size.json"
BOUGHT = ROOT / "docs/measured/buy.json"
PICTURE = ROOT / "docs/pictures/report.png"
PAGES = ("README.md", "docs/sizing.md")
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
_WIDTH = 100
_CHARTS = "".join(f":not([aria-labelledby={name}])" for name in ("capacity", "sources"))
_HIDE = f"<style>section{_CHARTS}, header, nav, footer {{display: none}}</style>"
Document = Mapping[str, Any]


def command(place: int) -> list[str]:
    """The words of the first command of the README, or of the study of docs/sizing.md, without the
    file that it writes."""
    text = page(place).split("\n## A study")[-1] if place else page(0)
    found = re.search(r"^ *hicache (size TRACE\.jsonl .*?) -o report\.html$", text, re.MULTILINE)
    assert found, f"{PAGES[place]}: expected hicache size TRACE.jsonl ... -o report.html"
    return found[1].split()


def page(place: int) -> str:
    return (ROOT / PAGES[place]).read_text()


def measured(report: Document) -> dict[str, Any]:
    """What is kept of the report of the command."""
    return {
        "command": " ".join(["hicache", *command(1)]),
        "decisions": decisions(),
        "sentences": report["verdict"]["sentences"],
        "estimates": report["estimates"],
        "served": report["verdict"]["served"],
        "best": report["verdict"]["best"],
        "points": [
            {
                "label": one["label"],
                "speed": one["config"]["speed"],
                "digest": one["digest"],
                "replays": one["replays"],
            }
            for one in report["variants"]
        ],
    }


def bought(report: Document) -> dict[str, Any]:
    """What is kept of the report of the command that says what to buy."""
    decision = report["decision"]
    tried = [one for one in decision["candidates"] if one["served"] is not None]
    return {
        "command": " ".join(["hicache", *command(0)]),
        "decisions": decisions(),
        "sentences": report["verdict"]["sentences"],
        "estimates": report["estimates"],
        "answer": decision["answer"],
        "digest": report["variants"][0]["digest"],
        "replays": decision["replays"],
        "candidates": len(decision["candidates"]),
        "tried": tried,
    }


def texts(purchase: Document, study: Document) -> list[str]:
    """What stands between the marks of each page."""
    told = "\n".join(fill(one, _WIDTH) for one in purchase["sentences"])
    every = "\n".join(fill(one, _WIDTH) for one in [*study["sentences"], *study["estimates"]])
    return [f"```text\n{told}\n```", f"{_table(study['points'])}\n\n```text\n{every}\n```"]


def between(text: str) -> str:
    return text.split(BEGIN)[1].split(END)[0].strip()


def _table(points: Sequence[Document]) -> str:
    rows = [
        "| point | hit rate | p50 TTFT | p90 TTFT | keep both limits | goodput |",
        "|---|---|---|---|---|---|",
    ]
    for point in points:
        replays = point["replays"]
        cells = [
            point["label"],
            f"{median(replays['hit_rate']) * 100:.1f} %",
            *(f"{_ranged(replays[name], 1, 2)} s" for name in ("ttft_p50_s", "ttft_p90_s")),
            f"{_ranged(replays['attained_rate'], 100, 1)} %",
            f"{_ranged(replays['goodput_requests_per_s'], 1, 3)} a second",
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def _ranged(values: Sequence[float], scale: int, digits: int) -> str:
    least, most = (f"{one * scale:.{digits}f}" for one in (min(values), max(values)))
    middle = f"{median(values) * scale:.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"


def _report(place: int, folder: Path) -> tuple[Document, Path]:
    """Runs a command; its document and its page. folder: of files on the way."""
    size, _, *options = command(place)
    folder.mkdir(parents=True, exist_ok=True)
    report, html = folder / "report.json", folder / "report.html"
    files = ["--json", str(report), "-o", str(html), "--points", str(folder / "points.jsonl")]
    assert main([size, str(TRACE), *options, *files]) == 0
    return json.loads(report.read_text()), html


def _write(folder: Path, places: Sequence[int]) -> None:
    """Runs the commands of these pages and writes everything."""
    BOUGHT.parent.mkdir(exist_ok=True)
    if 0 in places:
        report, _ = _report(0, folder / "buy")
        BOUGHT.write_text(json.dumps(bought(report), indent=1) + "\n")
    if 1 in places:
        report, html = _report(1, folder / "study")
        MEASURED.write_text(json.dumps(measured(report), indent=1) + "\n")
        _draw(html)
    write_pages(json.loads(BOUGHT.read_text()), json.loads(MEASURED.read_text()))


def write_pages(purchase: Document, study: Document) -> None:
    for name, text in zip(PAGES, texts(purchase, study), strict=True):
        path = ROOT / name
        before, rest = path.read_text().split(BEGIN)
        path.write_text(f"{before}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}")


def _draw(html: Path) -> None:
    some = html.with_suffix(".charts.html")
    some.write_text(html.read_text().replace("</head>", f"{_HIDE}</head>", 1))
    shot = [f"--screenshot={PICTURE}", "--window-size=1000,1280", "--virtual-time-budget=5000"]
    words = ["chromium", "--headless", "--no-sandbox", "--hide-scrollbars", *shot, f"file://{some}"]
    subprocess.run(words, check=True, timeout=120, capture_output=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("python -m tests.bench.headline FOLDER [0 or 1, to measure one page alone]")
    _write(Path(sys.argv[1]), [int(one) for one in sys.argv[2:]] or [0, 1])
