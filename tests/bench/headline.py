"""Measures the first command of the README (which machine to buy) on the conversation trace, and
writes its answer into the page. `python -m tests.bench.headline FOLDER` does all of it (FOLDER has
files on the way):

    docs/measured/buy.json     what the command printed, and the figures of replays
    README.md                  the text between the two marks, made from this file

Replays that a killed run had done are kept (--points). tests/test_docs compares all of this.
"""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import fill
from typing import Any

from traces.cli import main
from traces.sweeping.points import decisions

ROOT = Path(__file__).resolve().parents[2]
TRACE = ROOT.parent / "shared/traces/mooncake_conversation.jsonl"
BOUGHT = ROOT / "docs/measured/buy.json"
PAGE = ROOT / "README.md"
BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"
_WIDTH = 100
Document = Mapping[str, Any]


def command() -> list[str]:
    """The words of the first command of the README, without the file that it writes."""
    text = PAGE.read_text()
    match = re.search(r"^ *hicache (size TRACE\.jsonl .*?) -o report\.html$", text, re.MULTILINE)
    assert match, f"{PAGE.name}: expected hicache size TRACE.jsonl ... -o report.html"
    return match[1].split()


def bought(report: Document) -> dict[str, Any]:
    """What is kept of the report of the command."""
    decision = report["decision"]
    tried = [item for item in decision["candidates"] if item["served"] is not None]
    return {
        "command": " ".join(["hicache", *command()]),
        "decisions": decisions(),
        "sentences": report["verdict"]["sentences"],
        "estimates": report["estimates"],
        "answer": decision["answer"],
        "digest": report["variants"][0]["digest"],
        "replays": decision["replays"],
        "candidates": len(decision["candidates"]),
        "tried": tried,
    }


def first_thousand(answer: Document, folder: Path) -> dict[str, Any]:
    """The digest and goodput of a replay of the first requests on the machine that was bought."""
    named = ("hardware", "tp", "replicas", "host_bytes")
    words = [word for name in named for word in (f"--{name.replace('_', '-')}", str(answer[name]))]
    words += ["--arrivals", "spread", "--seed", "1", "--check", "off", "--limit", "1000", "--json"]
    assert main(["replay", str(TRACE), *command()[2:], *words, f"{folder}/first.json"]) == 0
    result = json.loads((folder / "first.json").read_text())
    return {name: result[name] for name in ("digest", "slo")}


def line_of(purchase: Document) -> str:
    """What stands between the marks of the page."""
    sentences = "\n".join(fill(item, _WIDTH) for item in purchase["sentences"])
    return f"```text\n{sentences}\n```"


def between(text: str) -> str:
    return text.split(BEGIN)[1].split(END)[0].strip()


def _write(folder: Path) -> None:
    """Runs the command and writes everything. folder: of files on the way."""
    size, _, *options = command()
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report.json"
    files = ["--json", str(report), "--points", str(folder / "points.jsonl")]
    assert main([size, str(TRACE), *options, *files]) == 0
    result = bought(json.loads(report.read_text()))
    result["first_1000"] = first_thousand(result["answer"], folder)
    BOUGHT.write_text(json.dumps(result, indent=1) + "\n")
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{line_of(result)}\n{END}{rest.split(END)[1]}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("python -m tests.bench.headline FOLDER")
    _write(Path(sys.argv[1]))
