"""Pages that list what the code has: the list is the code's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from hicache.core.ledger import Pool
from invariants.base import check_names, load_check
from sim import hardware as profile
from traces.cli import main

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def test_docs_list_every_check_with_its_sentence() -> None:
    page = (DOCS / "invariants.md").read_text().split("## The checks\n")[1]
    table = [line for line in page.splitlines() if line.startswith("|")][2:]
    found = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]
    checks = map(load_check, check_names())
    assert found == [(one.name, one.sentence, str(one.kind)) for one in checks]


def test_docs_of_bugs_name_existing_tests_and_checks() -> None:
    page = (DOCS / "bugs.md").read_text().split("## Found in other engines")[0]
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = {name.replace("-", "_") for name in check_names()}
    for name in re.findall(r"`(\w+)`", page):
        known = name in files or f"def {name}(" in sources
        assert known or name in {"too_large", "write_back", "CoreBug"}, name
    for path in re.findall(r"`((?:tests|sim|invariants)/[\w/.]+)`", page):
        assert (ROOT / path).exists(), path


def walked() -> list[tuple[str, list[str]]]:
    """The commands that the page of fuzzing shows, each with the lines that it is said to print."""
    blocks = re.findall(
        r"```console\n\$ (.*?)\n(.*?)```", (DOCS / "fuzzing.md").read_text(), re.DOTALL
    )
    return [(command, shown.splitlines()) for command, shown in blocks]


def masked(line: str) -> str:
    """Numbers move with the code and its draws, the words do not."""
    return " ".join(re.sub(r"\b[0-9a-f]*\d[0-9a-f]*\b", "#", line).split())


def test_the_documented_debugging_session_matches_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    give_back = Pool.give_back
    monkeypatch.setattr(Pool, "give_back", lambda pool, pages: give_back(pool, pages[:-1]))
    [(command, shown)] = walked()
    code = main(shlex.split(command)[1:])
    said = set(map(masked, capsys.readouterr().out.splitlines()))
    assert shown.pop() == f"[exit code {code}]", command
    missing = [line for line in shown if line != "..." and masked(line) not in said]
    assert not missing, f"docs/fuzzing.md: {command} does not print {missing}"


def test_docs_of_times_list_the_hardware_of_the_profiles() -> None:
    lines = (DOCS / "times.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    rows = {row[0]: row[1:] for row in cells if len(row) == 9 and row[0] in profile.names()}
    assert list(rows) == profile.names()
    for name, row in rows.items():
        one = profile.get(name)
        rates = (one.flops_per_s, one.fp8_flops_per_s, one.fp4_flops_per_s)
        assert row == [
            *(f"{rate / 1e12:,.0f}" if rate else "-" for rate in rates),
            f"{one.hbm_bytes_per_s / 1e9:,.0f}",
            f"{one.hbm_bytes / 1e9:,.0f}",
            f"{one.link_bytes_per_s / 1e9:,.1f}",
            f"{one.link_permille / 10:.1f} %",
            f"{one.ranks_link} {one.ranks_link_bytes_per_s / 1e9:,.1f}",
        ]
        # the text under the table says these for all
        assert (one.compute_permille, one.hbm_permille) == (600, 800)
        assert (one.copy_latency_ns, one.step_overhead_ns) == (6_000, 500_000)
