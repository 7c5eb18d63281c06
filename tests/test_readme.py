"""The links of the README lead somewhere, its figures are true.

Its commands are run by test_commands.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE_S
from traces.cli import main

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
REPLAY = (ROOT / "docs/replay.md").read_text()


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


@pytest.mark.newest
def test_what_the_readme_installs_runs_what_it_shows(tmp_path: Path) -> None:
    """In an environment of its own; the tokens come from disk in a second process."""
    [line] = re.findall(r"`pip (install -e '\.\[transformers\]')`", README)
    [example] = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    torch = (ROOT / "constraints.txt").read_text().strip()
    python = tmp_path / "env" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    said = ""
    for words in (
        (sys.executable, "-m", "venv", tmp_path / "env"),
        (python, "-m", "pip", "install", "--quiet", torch),
        (python, "-m", "pip", "--quiet", *shlex.split(line), torch),
        *((python, "-c", f"import os; os.chdir({str(tmp_path)!r})\n{example}"),) * 2,
    ):
        done = subprocess.run(
            words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        said = done.stdout
    assert re.findall(r"hits, disk +(\d+)", said)[-1] == "992", said


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
