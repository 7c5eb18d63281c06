"""The links of the README lead somewhere, its figures are true.

Its commands are run by test_commands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from traces.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
REPLAY = (ROOT / "docs/replay.md").read_text()


def test_every_page_linked_by_the_readme_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]


def test_the_model_of_the_readme_skips_what_it_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    for hits in ({"device": 992, "disk": 0}, {"device": 992, "disk": 992}):
        names: dict[str, Any] = {}
        exec(compile(example, "README.md", "exec"), names)
        with names["cache"] as cache:
            assert cache.stats.hits == {"host": 0} | hits


def test_the_report_in_the_docs_is_the_one_of_the_built_in_workload(
    capsys: pytest.CaptureFixture[str],
) -> None:
    [shown] = re.findall(r"```text\n(\S+ % of the prompt tokens.*?)```", REPLAY, re.DOTALL)
    assert main(["replay"]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    wanted = [line for line in shown.splitlines() if not line.startswith("wall time")]
    assert [line for line in printed if not line.startswith("wall time")] == wanted
    assert len(printed) <= 45
    [digest] = re.findall(r"^digest +(\w+)$", shown, re.MULTILINE)
    assert f"`{digest}`" in README
