"""A store that is dead, hangs or refuses costs little, and says so: once, and why.

A wrapper over any store. It is *out* after several look-ups or reads in a row that failed, or that
waited too long together, or while a call has made no progress (`step`) for too long. Then nothing
is asked. A *probe* on a thread of its own repeats the smallest part of what failed, to see whether
the store is back; nobody waits for it. A store that only refuses writes goes on serving reads. Then
the write that comes after a pause is the trial. Pauses double, also from one outage to the next, as
long as the store does not stay.

There is one notice for each change of health, with the first reason that the store gave (`tell`).
What was not answered, read or stored is counted (`losses`). A call under way goes on: the buffers
of a read belong to the store until it answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .base import Entry, Losses, Status, Storage, Value, listening, size_of, watching

_LOST = (None, Status.FAILED, Status.FULL)
_HUNG_PROBES = 4  # threads that may be lost in them


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """failures: calls in a row that must fail. patience_s: seconds that failed calls in a row may
    wait together without progress; one that waits as long is enough. slow_s: a call that makes no
    progress for longer has failed.
    first_pause_s, longest_pause_s: between probes."""

    failures: int = 5
    patience_s: float = 0.9
    slow_s: float = 5.0
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0


@dataclass(slots=True, eq=False)
class _Call:
    """One call of the store. kind: the method. value_bytes: of the first value. moved_s: when it
    began, or last made progress. trial: a write that shows whether writes are taken again. late: it
    was judged already. heard: why values failed."""

    kind: str
    keys: Sequence[str]
    value_bytes: int
    began_s: float
    moved_s: float
    trial: bool = False
    probe: bool = False
    late: bool = False
    heard: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Any]:
        return [None if self.kind == "lookup" else Status.FAILED] * len(self.keys)


@dataclass(slots=True)
class _Outage:
    """Of all calls, or of writes. since: None if there is none. told: a person knows of it."""

    options: BreakerOptions
    since: float | None = None
    why: str = ""
    told: bool = False
    back_at: float = float("-inf")
    pause: float = 0.0
    probe_at: float = float("-inf")
    probing: bool = False

    def begin(self, now: float, why: str) -> None:
        """The first pause is longer than the last one if the store was back for a short time."""
        first, longest = self.options.first_pause_s, self.options.longest_pause_s
        self.pause = first if now - self.back_at > longest else min(2 * self.pause, longest)
        self.since, self.why, self.told, self.probe_at = now, why, False, now + self.pause

    def end(self, now: float) -> float:
        """Returns how long it was."""
        away = now - (self.since or 0.0)
        self.since, self.told, self.probing, self.back_at = None, False, False, now
        return away

    def begins_probe(self, now: float) -> bool:
        """Whether the pause is over and no probe is under way. Then one has begun."""
        due = not self.probing and now >= self.probe_at
        self.probing = self.probing or due
        return due

    def put_off(self, now: float) -> None:
        """A probe has failed."""
        self.probing, self.pause = False, min(2 * self.pause, self.options.longest_pause_s)
        self.probe_at = now + self.pause


class Breaker(Storage):
    """A store that is asked only while it answers. now: seconds of a clock that never goes back.
    notice: gets a sentence for each change of health. start: runs a probe, by default on a thread.
    """

    def __init__(
        self,
        store: Storage,
        name: str,
        now: Callable[[], float],
        notice: Callable[[str], None],
        options: BreakerOptions | None = None,
        start: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self.store, self._name, self._now, self._notice = store, name, now, notice
        self._options, self._start = options or BreakerOptions(), start or _on_a_thread
        self._lock = threading.Lock()
        self._under_way: list[_Call] = []
        self._closed = False
        self._losses = Losses()
        self._failing: dict[str, tuple[int, float]] = {}  # calls in a row, and their seconds
        self._whole, self._writes = _Outage(self._options), _Outage(self._options)
        self._suspect: _Call | None = None  # what a probe is to repeat
        self._hung_probes = 0

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return self._ask("lookup", keys)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self._ask("read", keys, values)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self._ask("write", keys, values)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        return self._ask("delete", keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        if self.out:
            raise ConnectionError(f"{self._name} does not answer")
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        return {} if self.out else self.store.stats()

    def poll(self) -> int:
        with self._lock:
            for call in [call for call in self._under_way if self._hangs(call)]:
                self._under_way.remove(call)
                call.late = True
                self._hung_probes += call.probe
                self._judge(call, call.failed)
        self._probe_if_due()
        return self._losses.outages - self.out

    def close(self) -> None:
        self._closed = True
        self.store.close()

    @property
    def out(self) -> bool:
        """Whether the store counts as out."""
        return self._whole.since is not None

    @property
    def losses(self) -> Losses:
        with self._lock:
            return replace(self._losses)

    def _ask(self, kind: str, keys: Sequence[str], *values: Sequence[Value]) -> list[Any]:
        """The answers of the store, or as many failures if it is not asked."""
        if not keys:
            return []
        self.poll()
        with self._lock:
            now = self._now()
            call = _Call(kind, keys, size_of(values[0][0]) if values else 0, now, now)
            refuses = kind == "write" and self._writes.since is not None
            call.trial = refuses and not self.out and self._writes.begins_probe(now)
            if self.out or refuses > call.trial:
                self._count(kind, call.failed)
                return call.failed
            self._under_way.append(call)
        try:
            return self._run(call, *values)
        finally:
            self._probe_if_due()

    def _run(self, call: _Call, *values: Sequence[Value]) -> list[Any]:
        """The answers of the store."""
        answers = call.failed  # if it raises
        try:
            with listening() as call.heard, watching(partial(self._moved, call)):
                ask: Callable[..., list[Any]] = getattr(self.store, call.kind)
                answers = ask(call.keys, *values)
        finally:
            with self._lock:
                if not call.late:
                    self._under_way.remove(call)
                    self._judge(call, answers)
                elif call.probe:
                    self._hung_probes -= 1
                else:
                    self._losses.late += 1
        return answers

    def _judge(self, call: _Call, answers: Sequence[bool | Status | None]) -> None:
        """What a call says about the store."""
        now, kind = self._now(), call.kind
        lost, slow = [answer for answer in answers if answer in _LOST], self._hangs(call)
        why = (call.heard or ["no room" if Status.FULL in lost[:1] else "no answer"])[0]
        if slow:
            why = f"a call has taken more than {self._options.slow_s:g} s without progress"
        if call.probe:
            self._probed(why if lost or slow else "")
            return
        self._count(kind, answers)
        if lost or slow:
            self._losses.waited_s += now - call.began_s
        if self._closed:
            return  # closing makes calls fail
        if not (lost or slow):
            self._failing.pop(kind, None)
            if call.trial and self._writes.since is not None:  # it may have been forgotten since
                told, away = self._writes.told, self._writes.end(now)
                if told:
                    self._say(f"takes writes again, after {away:.1f} s")
            return
        failures, waited_s = self._failing.get(kind, (0, 0.0))
        failures = failures + 1 if slow or len(lost) == len(answers) else 0
        waited_s += 0.0 if set(lost) == {Status.FULL} else now - call.moved_s
        self._failing[kind] = failures, waited_s
        over = slow or failures >= self._options.failures or waited_s >= self._options.patience_s
        if call.trial:
            self._writes.put_off(now)
        elif kind == "delete":
            self._suspect = self._suspect or (call if slow else None)
        elif over and kind != "write":
            self._go_out(call, why)
        elif over and self._writes.since is None and not self.out:
            self._writes.begin(now, why)
            self._suspect = self._suspect or call  # it may be dead: a probe shows which

    def _go_out(self, call: _Call, why: str) -> None:
        if self.out:
            return
        self._losses.outages += 1
        self._whole.begin(self._now(), why)
        self._suspect = call
        self._writes.since, self._writes.probing = None, False  # it is found out anew
        self._failing.pop("write", None)
        self._say(f"does not answer ({why}); going on without it, and asking again now and then")

    def _say(self, what: str) -> None:
        self._notice(f"storage: {self._name} {what}")

    def _moved(self, call: _Call) -> None:
        call.moved_s = self._now()

    def _hangs(self, call: _Call) -> bool:
        return self._now() - call.moved_s > self._options.slow_s

    def _count(self, kind: str, answers: Sequence[bool | Status | None]) -> None:
        losses, lost = self._losses, sum(answer in _LOST for answer in answers)
        if kind == "lookup":
            losses.lookups_unanswered += lost
        elif kind == "read":
            losses.reads_failed += lost
            losses.reads_missing += answers.count(Status.MISSING)
        elif kind == "write":
            losses.writes_refused += len(answers) - answers.count(Status.DONE)
        else:
            losses.deletes_failed += lost

    # -- probes

    def _probe_if_due(self) -> None:
        """Begin a probe if something is to be found out and the pause is over."""
        with self._lock:
            wanted = self._suspect is not None and not self._closed
            wanted = wanted and self._hung_probes < _HUNG_PROBES
            due = wanted and self._whole.begins_probe(self._now())
        if due:
            self._start(self._probe)

    def _probe(self) -> None:
        """Look up or read the first value of the call that failed, into memory of its own."""
        with self._lock:
            what, now = self._suspect, self._now()
            if what is None:  # it was found out meanwhile
                self._whole.probing = False
                return
            kind = "read" if what.kind == "read" else "lookup"
            call = _Call(kind, what.keys[:1], what.value_bytes, now, now, probe=True)
            self._under_way.append(call)
        values = [[(memoryview(bytearray(call.value_bytes)),)]] if kind == "read" else []
        with suppress(Exception):  # a defect of the backend; there is nobody else to tell
            self._run(call, *values)

    def _probed(self, why: str) -> None:
        """why: the reason if it failed."""
        if why and self.out:
            self._whole.put_off(self._now())
            return
        what, self._whole.probing, self._suspect = self._suspect, False, None
        if self.out:
            self._failing.clear()
            self._say(f"answers again, after {self._whole.end(self._now()):.1f} s")
        elif why and what is not None:
            self._go_out(what, why)
        elif self._writes.since is not None and not self._writes.told:
            self._losses.write_outages += 1
            self._writes.told = True
            self._say(
                f"takes no writes ({self._writes.why}); what it has is read, and new pages are not "
                "kept"
            )


def _on_a_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="storage-probe", daemon=True).start()
