"""The README runs: every command of its shell blocks, in order, on a small input."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()]


def small_trace(path: Path) -> None:
    """A trace in the Mooncake format: 40 requests that share blocks."""
    lines = []
    for number in range(40):
        blocks = [0, 1 + number % 3, 10 + number]
        lines.append(
            json.dumps(
                {
                    "timestamp": number * 50,
                    "input_length": 3 * 512 - 100,
                    "output_length": 20,
                    "hash_ids": blocks,
                }
            )
        )
    path.write_text("\n".join(lines) + "\n")


def test_the_readme_shows_the_main_commands() -> None:
    shown = commands()
    assert "make replay" in shown
    assert "make check" in shown
    assert {line.split()[1] for line in shown if line.startswith("hicache")} == {
        "replay",
        "generate",
        "inspect",
    }


def test_every_hicache_command_of_the_readme_runs(tmp_path: Path) -> None:
    small_trace(tmp_path / "TRACE.jsonl")
    for line in commands():
        words = shlex.split(line)
        if words[0] != "hicache":
            continue
        done = subprocess.run(
            [sys.executable, "-m", "traces", *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"


@pytest.mark.parametrize("target", ["replay", "check", "bench", "help"])
def test_every_make_target_of_the_readme_exists(target: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", target],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ, MAKEFLAGS=""),
    )
    assert done.returncode == 0, done.stderr


def test_every_page_linked_by_the_readme_exists() -> None:
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if "://" not in link]
    assert links
    assert not [link for link in links if not (ROOT / link).exists()]
