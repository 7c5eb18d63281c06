"""The README shows the main commands, its links lead somewhere, its figures are true.

Its commands are run by test_commands.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from invariants.base import check_names
from invariants.planted.base import names
from tests.patience import PATIENCE_S
from traces.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
REPLAY = (ROOT / "docs/replay.md").read_text()


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def test_the_readme_shows_the_main_commands() -> None:
    shown = commands()
    assert "make replay" in shown
    assert "make check" in shown
    assert {line.split()[1] for line in shown if line.startswith("hicache")} == {
        "replay",
        "generate",
        "host",
        "inspect",
        "store",
    }


@pytest.mark.parametrize("target", ["replay", "check", "bench", "help"])
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, MAKEFLAGS=""),
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr


def test_every_page_linked_by_the_readme_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_counts_of_the_readme_are_those_of_the_code() -> None:
    checks, bugs = len(check_names()), len(names())
    assert f"{checks} [invariants]" in README
    assert f"plants {bugs} bugs" in README


def test_the_figures_of_the_readme_are_those_of_the_page_of_figures() -> None:
    rows: dict[str, list[str]] = {}
    for row in (ROOT / "docs/figures.md").read_text().splitlines():
        if row.startswith(("| 0 GB", "| 1 TB", "| 2 TB")):
            size, *cells = [cell.strip() for cell in row.strip("|").split("|")]
            rows.setdefault(size, cells)  # the first table is that of the picture
    rates = {size: cells[2].removesuffix(" %") for size, cells in rows.items()}
    times = {size: f"{float(cells[5].removesuffix(' s')):.1f}" for size, cells in rows.items()}
    assert f"from {rates['0 GB']} to {rates['1 TB']} %" in README
    assert f"from {times['0 GB']} to {times['1 TB']} s" in README
    more = round(float(rates["2 TB"]) - float(rates["1 TB"]))
    assert f"Another terabyte adds {more} points" in README


def test_the_report_in_the_docs_is_the_one_of_the_built_in_workload(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [shown] = re.findall(r"```text\n(Replay\n.*?)```", REPLAY, re.DOTALL)
    assert main(["replay"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    wanted = [line for line in shown.splitlines() if not line.startswith("wall time")]
    start = printed.index("Replay")
    assert [line for line in printed[start:] if not line.startswith("wall time")] == wanted
    [digest] = re.findall(r"^digest +(\w+)$", shown, re.MULTILINE)
    assert f"`{digest}`" in README
