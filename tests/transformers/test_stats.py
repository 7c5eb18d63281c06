"""The figures of a cache, and what happens to Ctrl-C while its core decides."""

from __future__ import annotations

import signal

import pytest

from hicache.transformers.interrupts import uninterrupted
from hicache.transformers.stats import Stats


def test_seconds_saved_follow_from_passes_that_tell() -> None:
    stats = Stats(hits={"device": 100, "host": 20, "disk": 0}, waited_s=0.5)
    stats.note_pass(31, 100.0)
    assert stats.saved_s == 0.0
    stats.note_pass(200, 1.0)
    stats.note_pass(200, 3.0)
    assert stats.saved_s == pytest.approx(120 * 4.0 / 400 - 0.5)
    assert stats.as_dict()["saved_tokens"] == 120


def test_the_table() -> None:
    stats = Stats(requests=2, prompt_tokens=2000, computed_tokens=1008)
    stats.hits["device"] = 992
    stats.bytes["device"] = 2_100_000
    lines = str(stats).splitlines()
    assert lines[2].split() == ["hits,", "device", "992", "2.1", "MB", "in", "use"]
    assert lines[6].split() == ["tokens", "saved", "992", "49.6%"]


def test_an_error_leaves_ctrl_c_as_it_was() -> None:
    known = signal.getsignal(signal.SIGINT)
    try:
        with pytest.raises(ZeroDivisionError), uninterrupted():
            raise ZeroDivisionError
        assert signal.getsignal(signal.SIGINT) is known
    finally:
        signal.signal(signal.SIGINT, known)


@pytest.mark.usefixtures("signals")
def test_ctrl_c_waits_for_the_end_of_a_decision() -> None:
    steps: list[str] = []

    def decide() -> None:
        with uninterrupted():
            signal.raise_signal(signal.SIGINT)
            steps.append("decided")
        steps.append("too late")

    with pytest.raises(KeyboardInterrupt):
        decide()
    assert steps == ["decided"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
