"""Figures: each benchmark records what it measured; a table with the targets closes the run."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conversation import conversation as find_conversation

_ROWS: list[tuple[str, str, str]] = []

Record = Callable[[str, str, str], None]


@pytest.fixture
def record() -> Record:
    """Record one figure: what, measured, target."""
    return lambda what, measured, target: _ROWS.append((what, measured, target))


@pytest.fixture(scope="session")
def conversation() -> Path:
    return find_conversation()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(": ")[2] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _ROWS:
        return
    say = terminalreporter.write_line
    say("")
    say(f"figures on {_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    widths = [max(len(row[column]) for row in _ROWS) for column in range(3)]
    for what, measured, target in _ROWS:
        say(f"  {what:<{widths[0]}}  {measured:>{widths[1]}}  target {target}")
