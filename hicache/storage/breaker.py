"""A store that is dead or hangs costs little: its calls are answered `FAILED` without asking it.

A wrapper over any store. After several failed calls in a row, or while one call has been under way
for too long, the store counts as out: nothing is asked, but one small read now and then, to see
whether it is back. The pauses between these probes double. There is one notice when the store goes
out and one when it is back, however many calls fail between.

Does not end a call that is under way: the buffers of a read belong to the store until it answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from .base import Entry, Status, Storage, Value

_PROBE = "probe"  # no page has this key


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """failures: calls in a row that must fail. slow_s: a call that takes longer has failed.
    first_pause_s, longest_pause_s: between probes."""

    failures: int = 5
    slow_s: float = 5.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0


class Breaker(Storage):
    """A store that is asked only while it answers. now: seconds of a clock that never goes back.
    notice: gets a sentence when the store goes out and when it is back."""

    def __init__(
        self,
        store: Storage,
        name: str,
        now: Callable[[], float],
        notice: Callable[[str], None],
        options: BreakerOptions | None = None,
    ) -> None:
        self.store = store
        self._name = name
        self._now = now
        self._notice = notice
        self._options = options or BreakerOptions()
        self._lock = threading.Lock()
        self._failures = 0  # in a row
        self._begun: dict[int, float] = {}  # calls under way: when they began
        self._calls = 0
        self._out_since: float | None = None
        self._probe_at = 0.0
        self._probing = False
        self._pause = self._options.first_pause_s
        self.outages = 0
        self.refused = 0  # calls that the store was not asked

    def lookup(self, keys: Sequence[str]) -> list[bool]:
        if not self._may_ask():
            return [False] * len(keys)
        with self._watched() as call:
            found = self.store.lookup(keys)
            call.failed = None if not any(found) else False
        return found

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self._asked(lambda: self.store.read(keys, values), len(keys))

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self._asked(lambda: self.store.write(keys, values), len(keys))

    def read_checked(
        self, keys: Sequence[str], values: Sequence[Value], check: Callable[[int], bool]
    ) -> list[Status]:
        return self._asked(lambda: self.store.read_checked(keys, values, check), len(keys))

    def write_sealed(
        self, keys: Sequence[str], values: Sequence[Value], seal: Callable[[int], None]
    ) -> list[Status]:
        return self._asked(lambda: self.store.write_sealed(keys, values, seal), len(keys))

    def delete(self, keys: Sequence[str]) -> list[Status]:
        return self._asked(lambda: self.store.delete(keys), len(keys))

    def entries(self, prefix: str) -> Iterator[Entry]:
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        return self.store.stats() | {"outages": self.outages, "calls_refused": self.refused}

    def look(self) -> int:
        with self._lock:
            self._judge_hanging()
            return self.outages - self.out

    def close(self) -> None:
        self.store.close()

    def register(self, memory: Sequence[memoryview]) -> None:
        self.store.register(memory)

    @property
    def out(self) -> bool:
        """Whether the store counts as out."""
        return self._out_since is not None

    def _asked(self, ask: Callable[[], list[Status]], count: int) -> list[Status]:
        if not self._may_ask():
            return [Status.FAILED] * count
        with self._watched() as call:
            found = ask()
            call.failed = bool(found) and all(status is Status.FAILED for status in found)
        return found

    def _may_ask(self) -> bool:
        """Whether to ask the store. Probes it first if it is out and the pause is over."""
        with self._lock:
            now = self._judge_hanging()
            if self._out_since is None:
                return True
            if now < self._probe_at or self._probing:
                self.refused += 1
                return False
            self._probing = True
        try:
            with self._watched(probe=True) as call:
                answer = self.store.read([_PROBE], [(memoryview(bytearray(1)),)])
                call.failed = answer == [Status.FAILED]
        finally:
            self._probing = False
        with self._lock:
            if self._out_since is not None:
                self.refused += 1
            return self._out_since is None

    def _judge_hanging(self) -> float:
        """Go out if a call has been under way for too long. Returns the time."""
        now, slow_s = self._now(), self._options.slow_s
        hanging = [number for number, began in self._begun.items() if now - began > slow_s]
        for number in hanging:
            del self._begun[number]  # it is judged, and does not count again
        if hanging:
            self._go_out(f"a call has taken more than {slow_s:g} s")
        return now

    @contextmanager
    def _watched(self, probe: bool = False) -> Iterator[_Call]:
        """Time a call and judge it by its outcome. A lookup that finds nothing says nothing."""
        call = _Call()
        with self._lock:
            self._calls += 1
            number, began = self._calls, self._now()
            self._begun[number] = began
        try:
            yield call
        finally:
            with self._lock:
                self._begun.pop(number, None)
                slow = self._now() - began > self._options.slow_s
                if slow or call.failed:
                    self._failed(probe)
                elif call.failed is False:
                    self._answered()

    def _failed(self, probe: bool) -> None:
        self._failures += 1
        if probe:
            self._pause = min(self._pause * 2, self._options.longest_pause_s)
            self._probe_at = self._now() + self._pause
        elif self._out_since is None and self._failures >= self._options.failures:
            self._go_out(f"{self._failures} calls in a row failed")

    def _answered(self) -> None:
        self._failures = 0
        if self._out_since is not None:
            away = self._now() - self._out_since
            self._out_since = None
            self._notice(f"storage: {self._name} answers again, after {away:.1f} s")

    def _go_out(self, why: str) -> None:
        if self._out_since is not None:
            return  # one notice for each outage
        self.outages += 1
        self._out_since = self._now()
        self._pause = self._options.first_pause_s
        self._probe_at = self._out_since + self._pause
        self._notice(
            f"storage: {self._name} does not answer ({why}); going on without it, and asking "
            "again now and then"
        )


class _Call:
    """failed: None if the outcome says nothing about the store; so far it counts as failed."""

    failed: bool | None = True
