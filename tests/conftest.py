"""What the whole suite needs: room for its files, and signals as on a terminal."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis

CPU_S = 600.0  # of one test; one that computes for longer fails
ROOT = Path(__file__).parents[1]
ROOM_BYTES = 1_000_000_000  # more than a run on two cores ever takes

# Hypothesis fails a test that a busy machine makes slow; a verdict must not depend on that.
hypothesis.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """Says in one line that the files of tests have no room, before hundreds of tests say it."""
    folder = os.environ.get("TMPDIR", "/tmp")
    if hasattr(config, "workerinput") or not os.path.isdir(folder):
        return
    free = shutil.disk_usage(folder).free
    if free < ROOM_BYTES:
        raise pytest.UsageError(
            f"the tests need {ROOM_BYTES // 10**6:,} MB for their files, and {folder} has "
            f"{free // 10**6:,} MB left; make room, or name another folder in TMPDIR"
        )


gc.disable()  # modules live until the end: nothing that is loaded is looked at again


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without a GPU, a test that needs one fails, and is not left out: somebody asked for it."""
    if item.get_closest_marker("gpu"):
        from hicache.devices.cuda import unusable

        if missing := unusable():
            pytest.fail(missing, pytrace=False)


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
