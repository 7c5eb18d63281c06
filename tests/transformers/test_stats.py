"""The figures of a cache, and what happens to Ctrl-C while its core decides."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

from hicache.clock import uninterrupted
from hicache.storage.address import open_storage, parse
from hicache.storage.base import StorageOptions
from hicache.transformers import PrefixCache
from hicache.transformers.stats import Stats
from tests.patience import PATIENCE_S

from . import building as base
from .test_cache import prompt


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


def pages_of(address: str) -> int:
    """Pages in a store; the text beside them is written at a time of its own."""
    store = open_storage(parse(address), StorageOptions(create=False))
    try:
        return sum(not one.key.endswith("/context") for one in store.entries(""))
    finally:
        store.close()


@pytest.mark.one_in(32)
@pytest.mark.parametrize("room", [0, 300_000])
def test_every_page_is_in_the_store_or_counted_as_evicted(room: int, tmp_path: Path) -> None:
    model, address = base.build("llama"), f"file:{tmp_path}"
    for round in range(2):  # the second one begins with a store that has evicted already
        given = {"device_tokens": 512, "host_tokens": 4096, "page_size": 8, "storage": address}
        with PrefixCache(model, storage_bytes=room, **given) as cache:
            before = pages_of(address)
            for seed in range(24):
                ids = prompt(161, 30 * round + seed)
                cache.generate(ids, max_new_tokens=1, do_sample=False)
            assert cache.flush(PATIENCE_S)
            kept = pages_of(address) - before
            stats = cache.stats
        evicted = stats.evicted["disk"]
        # a page that made room before its batch was acknowledged is written once more
        assert kept + evicted >= 24 * 20
        assert room or kept == 24 * 20
        assert bool(evicted) == bool(room)
        assert cache.stats.evicted == stats.evicted
        assert stats.evicted["device"] > 0
        assert ("evicted, disk" in str(stats)) == bool(room)


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
