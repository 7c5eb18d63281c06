"""Calls of several threads, stores that hang or refuse, the figures of both, and Ctrl-C: a call
finds what the one before it left, none waits longer than it was told, what is lost is told."""

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)

import torch

from hicache.clock import Clock, uninterrupted
from hicache.storage.backends import file
from hicache.storage.base import Status
from hicache.transformers import ClosedError, PrefixCache, cache, engine
from hicache.transformers.cache import _open
from tests.needs import PATIENCE_S
from tests.runtime.storage.rig import until

from . import building as base
from .test_cache import SIZES, both, prompt

_MORE_S = 0.1  # of the last pauses


class PassingTime:
    """Time that passes when the program's own thread sleeps. It must not pass `latest_s`."""

    def __init__(self) -> None:
        self.now_s, self.latest_s = 0.0, float("inf")
        self._own = threading.get_ident()

    def sleep(self, seconds: float) -> None:
        if threading.get_ident() != self._own:
            time.sleep(seconds)
            return
        self.now_s += seconds
        assert self.now_s <= self.latest_s, "a call waits for longer than it was told"
        time.sleep(0)


@pytest.mark.parametrize("hanging", ["lookup", "read", "write"])
def test_a_store_that_hangs_is_waited_for_as_long_as_was_told(
    hanging: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, clock, draws = base.build("llama"), PassingTime(), Random(3)
    monkeypatch.setattr(cache, "Clock", lambda: Clock(lambda: clock.now_s, clock.sleep))
    monkeypatch.setattr(engine, "_PATIENCE_S", 0.0)
    answers, method = threading.Event(), getattr(file.FileStore, hanging)
    answers.set()

    def late(*items: Any) -> Any:
        assert answers.wait(PATIENCE_S)
        return method(*items)

    monkeypatch.setattr(file.FileStore, hanging, late)
    values = {"storage": f"file:{tmp_path}", **SIZES}
    with PrefixCache(model, **values) as first:
        both(model, first, prompt(60))
        assert first.flush(PATIENCE_S)
    for _ in range(3):
        wait_s = draws.choice((0.0, 0.3, 2.0))
        with PrefixCache(model, wait_s=wait_s, **values) as made:
            answers.clear()
            for call in sorted(("generate", "match", "flush"), key=lambda _: draws.random()):
                clock.latest_s = clock.now_s + wait_s + _MORE_S
                if call == "generate":
                    both(model, made, torch.cat([prompt(60), prompt(9, draws.randrange(9))], dim=1))
                elif call == "match":
                    made.match(prompt(60))
                else:
                    made.flush(wait_s)
            clock.latest_s = float("inf")
            answers.set()


def test_what_a_store_has_refused_since_the_last_flush_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, also when it was forgotten meanwhile. Each `close` returns what the first one has."""
    model, draws, method = base.build("llama"), Random(5), file.FileStore.write
    refuses, message = False, {True: 0, False: 0}

    def written(store: Any, keys: Sequence[str], *items: Any) -> list[Status]:
        return [Status.FULL] * len(keys) if refuses else method(store, keys, *items)

    monkeypatch.setattr(file.FileStore, "write", written)
    monkeypatch.setattr(engine.Engine, "carry_on", lambda _: None)
    for seed in range(6):
        with PrefixCache(model, storage=f"file:{tmp_path}/{seed}", **SIZES) as made:
            flushed, left = 0, False
            for number in range(8):
                refuses = not draws.randrange(5)
                made.generate(prompt(40, 100 * seed + number), max_new_tokens=1)
                if draws.randrange(2):
                    made.clear()
                if draws.randrange(2) or number == 7:
                    done = made.close() if number == 7 else made.flush(PATIENCE_S)
                    count, left = made.stats.losses.writes_refused, bool(made.stats.unstored_tokens)
                    assert done == (count == flushed and not left), (seed, number)
                    message[done] += 1
                    flushed = count
                    if not done and number < 7:
                        made.clear()
                        assert made.flush(PATIENCE_S), "what was refused has been told"
            assert made.close() == done
    assert min(message.values()) > 3


def test_clear_waits_until_all_is_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine.Engine, "carry_on", lambda _: None)
    with PrefixCache(base.build("llama"), storage=f"file:{tmp_path}", **SIZES) as made:
        made.generate(prompt(40), max_new_tokens=1)
        made.clear()
        assert made.match(prompt(40)) == 32


def test_calls_of_several_threads_take_turns() -> None:
    """Each call finds what those before it left, and the figures are those of all of them."""
    model, tokens = base.build("llama"), prompt(40)
    wanted = model.generate(tokens, max_new_tokens=3, do_sample=False).tolist()
    calls: list[Callable[[PrefixCache], Any]] = [
        lambda made: made.generate(tokens, max_new_tokens=3, do_sample=False).tolist(),
        lambda made: made.match(tokens) in (0, 32) or made.stats,
        lambda made: made.flush(PATIENCE_S),
        PrefixCache.clear,
    ]
    with PrefixCache(model, **SIZES) as made, ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(call, made) for _ in range(12) for call in calls]
        for number, future in enumerate(futures):
            answer = future.result(PATIENCE_S)
            assert answer == [wanted, True, True, None][number % 4]
        stats = made.stats
        assert (stats.requests, stats.prompt_tokens) == (12, 480)
        assert stats.computed_tokens + stats.saved_tokens == 480
    assert made.close()
    with pytest.raises(ClosedError):
        made.match(tokens)


def test_a_cache_that_could_not_be_closed_is_closed_at_the_end() -> None:
    """Another call was under way for longer than the program would wait."""
    with PrefixCache(base.build("llama"), **SIZES) as cache:
        with cache._engine.lock:
            assert not cache.close(0.0)
        assert cache._engine in _open
        assert cache.match(prompt(40)) == 0
    assert cache._engine not in _open


def test_pools_are_freed_once_nobody_has_the_cache() -> None:
    """Also if who drops the cache has it a little longer than the thread that closes it."""
    cache = PrefixCache(base.build("llama"), **SIZES)
    pools, longer, collections = weakref.ref(cache._engine), [cache._engine], gc.get_stats()
    del cache
    until(lambda: gc.get_stats()[2]["collections"] > collections[2]["collections"])
    longer.clear()
    until(lambda: pools() is None)


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
