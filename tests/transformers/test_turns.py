"""Calls of several threads: one that waits for its turn finds what the call before it left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

pytest.importorskip("transformers", reason="needs the extra transformers", exc_type=ImportError)


from hicache.transformers import ClosedError, PrefixCache
from hicache.transformers.cache import _open
from tests.patience import PATIENCE_S

from . import building as base
from .test_cache import SIZES, prompt

_TIMES = ("waited_s", "timed_s", "saved_s")


class Preceded:
    """A lock that another call takes first, once: on its own thread, and until it is done."""

    def __init__(self, lock: Any, other: Callable[[], Any]) -> None:
        self._lock, self._caller = lock, threading.get_ident()
        self._others = [threading.Thread(target=other)]

    def acquire(self, timeout: float = -1) -> bool:
        while self._others and threading.get_ident() == self._caller:
            other = self._others.pop()
            other.start()
            other.join(PATIENCE_S)
            assert not other.is_alive()
        return bool(self._lock.acquire(timeout=timeout))

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


def figures(cache: PrefixCache) -> dict[str, Any]:
    return {name: one for name, one in cache.stats.as_dict().items() if name not in _TIMES}


CALLS: dict[str, Callable[[PrefixCache], Any]] = {
    "generate": lambda cache: cache.generate(prompt(40), max_new_tokens=3).tolist(),
    "match": lambda cache: cache.match(prompt(40)),
    "clear": PrefixCache.clear,
    "flush": PrefixCache.flush,
    "close": PrefixCache.close,
    "stats": figures,
}
FIRST = ("generate", "clear", "close")  # the others change nothing


def result(cache: PrefixCache, name: str) -> Any:
    """What a call returns or says, when what it began is done."""
    try:
        found = CALLS[name](cache)
        if name not in ("close", "stats"):
            cache.flush()
    except ClosedError as error:
        return str(error)
    return found


@pytest.mark.one_in(64)
@pytest.mark.parametrize(("first", "second"), [*product(FIRST, CALLS)])
def test_a_call_that_has_waited_comes_after_the_one_before_it(first: str, second: str) -> None:
    model, found = base.build("llama"), []
    for waits in (True, False):
        with PrefixCache(model, **SIZES) as cache:
            result(cache, "generate")
            if waits:
                lock = Preceded(cache._ongoing.lock, lambda: result(cache, first))
                cache._ongoing.lock = lock  # type: ignore[assignment]
            else:
                result(cache, first)
            found.append((result(cache, second), result(cache, "stats")))
            assert (cache._ongoing in _open) == (not cache._ongoing.closed)
    assert found[0] == found[1]


def test_a_cache_that_could_not_be_closed_is_closed_at_the_end() -> None:
    """Another call was under way for longer than the program would wait."""
    with PrefixCache(base.build("llama"), **SIZES) as cache:
        with cache._ongoing.lock:
            assert not cache.close(0.0)
        assert cache._ongoing in _open
        assert cache.match(prompt(40)) == 0
    assert cache._ongoing not in _open
