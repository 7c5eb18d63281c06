"""What the whole suite needs: its order, room for its files, signals as on a terminal, and the
list of what was left out."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis

from .left_out import LeftOut
from .sampling import ALL, SAMPLE, changed, is_about, is_drawn, of_this_commit

LONG = "test_every_command_in_a_block_runs"
CPU_S = 600.0  # of one test; one that computes for longer fails
ROOT = Path(__file__).parents[1]
OTHER_COMMITS = "run with other commits, and with make check-all"
_OTHERS = pytest.StashKey[int]()
ROOM_BYTES = 1_000_000_000  # more than a run on two cores ever takes

# Hypothesis fails a test that a busy machine makes slow; a verdict must not depend on that.
hypothesis.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--left-out", metavar="FILE", help="also write what was left out to this file")
    parser.addoption(
        "--all",
        action="store_true",
        help="run every test, and every case of tests that sample them",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Chooses the part of this commit, for all processes. Says in one line that the files of tests
    have no room, before hundreds of tests say it."""
    config.addinivalue_line("markers", "one_in(n): slow; each commit draws one in n of its cases")
    if config.getoption("--all"):
        os.environ[SAMPLE] = ALL
    elif SAMPLE not in os.environ:
        os.environ[SAMPLE] = of_this_commit()
    folder = os.environ.get("TMPDIR", "/tmp")
    if hasattr(config, "workerinput") or not os.path.isdir(folder):
        return
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise pytest.UsageError(
            f"the tests need {ROOM_BYTES // 10**6:,} MB for their files, and {folder} has "
            f"{free // 10**6:,} MB left; make room, or name another folder in TMPDIR"
        )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves the tests out that `one_in` gives to other commits, but none that was named, and none
    about what is changed. The longest go first, so that every core has work until the end."""
    if not config.option.keyword and not any("::" in one for one in config.args):
        other = [item for item in but_about(changed(), items) if not _is_drawn(item)]
        config.hook.pytest_deselected(items=other)
        items[:] = [item for item in items if item not in set(other)]
        config.stash[_OTHERS] = len(other)
        if hasattr(config, "workeroutput"):
            config.workeroutput[OTHER_COMMITS] = len(other)
    items.sort(key=lambda item: not item.name.startswith(LONG))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Every worker collects all tests, so each of them leaves the same ones out."""
    node.config.stash[_OTHERS] = getattr(node, "workeroutput", {}).get(OTHER_COMMITS, 0)


def but_about(files: list[str], items: list[pytest.Item]) -> list[pytest.Item]:
    """Those whose files are not about any of these files."""
    about = {
        path: is_about(str(path.relative_to(ROOT)), path.read_text(), files)
        for path in {item.path for item in items if files and item.path.is_relative_to(ROOT)}
    }
    return [item for item in items if not about.get(item.path)]


def _is_drawn(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("one_in")
    return mark is None or is_drawn(item.nodeid, *mark.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test may take so much time of the processor; how busy the machine is does not matter."""

    def too_long(number: int, frame: object) -> None:
        pytest.fail(f"more than {CPU_S:.0f} s of processor time")

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, CPU_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        signal.signal(signal.SIGVTALRM, before)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    left_out = LeftOut.of(terminalreporter.stats.get("skipped", []))
    left_out.tests[OTHER_COMMITS] += config.stash.get(_OTHERS, 0)
    said = left_out.lines()
    terminalreporter.write_line("\n".join(said))
    if terminalreporter.stats.get("failed") and os.environ[SAMPLE] != ALL:
        terminalreporter.write_line(f"The same cases again: {SAMPLE}={os.environ[SAMPLE]}")
    if file := config.getoption("--left-out"):
        Path(file).write_text("\n".join(said) + "\n")


@pytest.fixture
def signals() -> Iterator[None]:
    """Ctrl-C and the end of a terminal act as usual, here and in processes that the test starts.

    A command that begins with both ignored (nohup, or `&` in a script) leaves them so, and its
    tests would wait in vain."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
