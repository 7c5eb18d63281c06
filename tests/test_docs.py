"""Pages that list what the code has: the list is the code's."""

from __future__ import annotations

import re
from pathlib import Path

from invariants.base import check_names, load_check

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"


def test_every_check_stands_in_the_page_of_invariants_with_its_sentence() -> None:
    rows = [
        line for line in (DOCS / "invariants.md").read_text().splitlines() if line.count("|") == 5
    ]
    table = rows[rows.index("|---|---|---|---|") + 1 :]
    found = [tuple(cell.strip() for cell in row.strip("|").split("|")) for row in table]
    checks = [(load_check(name), name.replace("-", "_")) for name in check_names()]
    assert found == [(one.name, f"`{file}`", one.sentence, str(one.kind)) for one, file in checks]


def test_the_page_of_bugs_names_tests_and_checks_that_exist() -> None:
    page = (DOCS / "bugs.md").read_text()
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    files = {name.replace("-", "_") for name in check_names()}
    for name in re.findall(r"`(\w+)`", page):
        known = name in files or f"def {name}(" in sources
        assert known or name in {"too_large", "write_back", "CoreBug"}, name
    for path in re.findall(r"`((?:tests|sim|invariants)/[\w/.]+)`", page):
        assert (ROOT / path).exists(), path
