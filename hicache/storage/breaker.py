"""A store that is dead, hangs or refuses costs little, and says so: once, and why.

A wrapper over any store. It is *out* after several look-ups or reads in a row that failed, or that
waited too long together, or while a call has made no progress (`step`) for too long. Then nothing
is asked. A *probe* on a thread of its own repeats the smallest part of what failed, to see whether
the store is back; nobody waits for it. A store that only refuses writes goes on serving reads. Then
the write that comes after a pause is the probe. Pauses double, also from one outage to the next, as
long as the store does not stay.

There is one notice for each change of health, with the first reason that the store gave (`tell`)
and however many calls fail. What was not answered, read or stored is counted (`losses`). Does not
end a call that is under way: the buffers of a read belong to the store until it answers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TypeVar

from .base import Entry, Losses, Status, Storage, Value, listening, size_of, watching

A = TypeVar("A", bool | None, Status)
_LOST = (Status.FAILED, Status.FULL)
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


class _Kind(Enum):
    LOOKUP, READ, WRITE, DELETE, PROBE = range(5)


@dataclass(slots=True, eq=False)
class _Call:
    """One call of the store. moved_s: when it began, or last made progress. probe: of what its
    answer decides. late: it was judged already. heard: why values failed."""

    kind: _Kind
    keys: Sequence[str]
    value_bytes: int  # of the first value
    began_s: float
    moved_s: float
    probe: bool = False
    late: bool = False
    heard: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Health:
    """Failures in a row, an outage, and the pauses between probes. why: of the outage. told: a
    person knows of it."""

    options: BreakerOptions
    failures: int = 0  # in a row
    spent_s: float = 0.0  # in these
    since: float | None = None  # of the outage
    back_at: float = float("-inf")
    pause: float = 0.0
    probe_at: float = float("-inf")
    probing: bool = False
    why: str = ""
    told: bool = False

    def failed(self, seconds: float, whole: bool) -> bool:
        """A call has failed. whole: for all of its values. Returns whether that is too much."""
        self.failures = self.failures + 1 if whole else 0
        self.spent_s += seconds
        limits = self.options
        return self.failures >= limits.failures or self.spent_s >= limits.patience_s

    def go_out(self, now: float, why: str) -> None:
        """The first pause is longer than the last one if it was back for a short time only."""
        first, longest = self.options.first_pause_s, self.options.longest_pause_s
        self.pause = first if now - self.back_at > longest else min(2 * self.pause, longest)
        self.since, self.why, self.told, self.probe_at = now, why, False, now + self.pause

    def forget(self) -> None:
        """It counts as well again."""
        self.since, self.probing, self.told, self.failures, self.spent_s = (
            None,
            False,
            False,
            0,
            0.0,
        )

    def back(self, now: float) -> float:
        """Returns for how long it was out."""
        away = now - (self.since or 0.0)
        self.back_at = now
        self.forget()
        return away

    def begin_probe(self, now: float) -> bool:
        """Whether the pause is over and no probe is under way. Then one has begun."""
        due = not self.probing and now >= self.probe_at
        self.probing = self.probing or due
        return due

    def failed_probe(self, now: float) -> None:
        """The next one comes after twice the pause."""
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
        self._slow_s = (options := options or BreakerOptions()).slow_s
        self._start = start or _on_a_thread
        self._lock = threading.Lock()
        self._begun: list[_Call] = []  # under way
        self._closed = False
        self._losses = Losses()
        self._healths = {kind: _Health(options) for kind in list(_Kind)[:3]}
        self._writes = self._healths[_Kind.WRITE]
        self._whole = _Health(options)  # whether it answers at all
        self._suspect: _Call | None = None  # what a probe is to repeat
        self._hung_probes = 0
        self.refused = 0  # calls that the store was not asked

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return self._ask(_Kind.LOOKUP, keys, (), lambda: self.store.lookup(keys), None)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        ask = partial(self.store.read, keys, values)
        return self._ask(_Kind.READ, keys, values, ask, Status.FAILED)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        ask = partial(self.store.write, keys, values)
        return self._ask(_Kind.WRITE, keys, values, ask, Status.FAILED)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        ask = partial(self.store.delete, keys)
        return self._ask(_Kind.DELETE, keys, (), ask, Status.FAILED)

    def entries(self, prefix: str) -> Iterator[Entry]:
        if self.out:
            raise ConnectionError(f"{self._name} does not answer")
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        figures = {} if self.out else self.store.stats()
        return figures | {"outages": self.outages, "calls_refused": self.refused}

    def poll(self) -> int:
        with self._lock:
            self._judge_hanging()
        self._probe_if_due()
        return self.outages - self.out

    def close(self) -> None:
        self._closed = True
        self.store.close()

    @property
    def out(self) -> bool:
        """Whether the store counts as out."""
        return self._whole.since is not None

    @property
    def outages(self) -> int:
        """How often it went out."""
        return self._losses.outages

    @property
    def losses(self) -> Losses:
        with self._lock:
            return replace(self._losses)

    def _ask(
        self,
        kind: _Kind,
        keys: Sequence[str],
        values: Sequence[Value],
        ask: Callable[[], list[A]],
        failed: A,
    ) -> list[A]:
        """The answers of the store, or as many failures if it is not asked."""
        if not keys:
            return []
        self.poll()
        answers = [failed] * len(keys)  # if it raises, or is not asked
        with self._lock:
            call = self._call(kind, keys, size_of(values[0]) if values else 0)
            refuses = kind is _Kind.WRITE and self._writes.since is not None
            call.probe = refuses and not self.out and self._writes.begin_probe(call.began_s)
            if self.out or refuses > call.probe:
                self.refused += 1
                self._count(kind, answers)
                return answers
            self._begun.append(call)
        try:
            with listening() as call.heard, watching(partial(self._moved, call)):
                answers = ask()
        finally:
            with self._lock:
                if call.late:
                    self._losses.late += 1
                else:
                    self._begun.remove(call)
                    self._judge(call, answers, self._too_long() if self._hangs(call) else "")
            self._probe_if_due()
        return answers

    def _call(self, kind: _Kind, keys: Sequence[str], value_bytes: int) -> _Call:
        return _Call(kind, keys, value_bytes, (now := self._now()), now)

    def _judge(self, call: _Call, answers: Sequence[bool | Status | None], slow: str) -> None:
        """What a call says about the store. slow: the reason if it took too long."""
        now = self._now()
        self._count(call.kind, answers)
        wrong = [answer for answer in answers if answer is None or answer in _LOST]
        if wrong or slow:
            self._losses.waited_s += now - call.began_s
        if self._closed:
            return  # closing makes calls fail
        health = self._healths.get(call.kind)
        if health is None:
            if slow:
                self._suspect = self._suspect or call
        elif not wrong and not slow:
            health.failures, health.spent_s = 0, 0.0
            if call.probe and health.since is not None:  # it may have been forgotten since
                told, away = health.told, health.back(now)
                if told:
                    self._say(f"takes writes again, after {away:.1f} s")
        else:
            waited = 0.0 if wrong and set(wrong) == {Status.FULL} else now - call.moved_s
            over = health.failed(waited, whole=bool(slow) or len(wrong) == len(answers))
            why = slow or (call.heard or [_in_words(wrong[0])])[0]
            if call.probe:
                health.failed_probe(now)
            elif (slow or over) and health is not self._writes:
                self._go_out(call, why)
            elif (slow or over) and health.since is None and not self.out:
                health.go_out(now, why)
                self._suspect = self._suspect or call  # it may be dead: a probe shows which

    def _go_out(self, call: _Call, why: str) -> None:
        if self.out:
            return
        self._losses.outages += 1
        self._whole.go_out(self._now(), why)
        self._suspect = replace(call, keys=call.keys[:1])
        self._writes.forget()  # it is found out anew
        self._say(f"does not answer ({why}); going on without it, and asking again now and then")

    def _say(self, what: str) -> None:
        self._notice(f"storage: {self._name} {what}")

    def _judge_hanging(self) -> None:
        """Give up on calls that have been under way for too long."""
        for call in [call for call in self._begun if self._hangs(call)]:
            self._begun.remove(call)
            call.late = True
            failed: Status | None = None if call.kind is _Kind.LOOKUP else Status.FAILED
            if call.kind is _Kind.PROBE:
                self._hung_probes += 1
                self._probed(call, self._too_long())
            else:
                self._judge(call, [failed] * len(call.keys), self._too_long())

    def _moved(self, call: _Call) -> None:
        call.moved_s = self._now()

    def _hangs(self, call: _Call) -> bool:
        return self._now() - call.moved_s > self._slow_s

    def _too_long(self) -> str:
        return f"a call has taken more than {self._slow_s:g} s without progress"

    def _count(self, kind: _Kind, answers: Sequence[bool | Status | None]) -> None:
        losses, lost = self._losses, sum(answer in _LOST for answer in answers)
        if kind is _Kind.LOOKUP:
            losses.lookups_unanswered += sum(answer is None for answer in answers)
        elif kind is _Kind.READ:
            losses.reads_failed += lost
            losses.reads_missing += sum(answer is Status.MISSING for answer in answers)
        elif kind is _Kind.WRITE:
            losses.writes_refused += sum(answer is not Status.DONE for answer in answers)
        else:
            losses.deletes_failed += lost

    # -- probes

    def _probe_if_due(self) -> None:
        """Begin a probe if something is to be found out and the pause is over."""
        with self._lock:
            due = self._suspect is not None and not self._closed
            due = due and self._hung_probes < _HUNG_PROBES
            due = due and self._whole.begin_probe(self._now())
        if due:
            self._start(self._probe)

    def _probe(self) -> None:
        """Look up or read the first value of the call that failed, into memory of its own."""
        with self._lock:
            what = self._suspect
            if what is None:  # it was found out meanwhile
                self._whole.probing = False
                return
            call = self._call(_Kind.PROBE, what.keys[:1], what.value_bytes)
            self._begun.append(call)
        with listening() as heard, watching(partial(self._moved, call)):
            try:
                if what.kind is _Kind.READ:
                    buffer = memoryview(bytearray(call.value_bytes))
                    failed = self.store.read(call.keys, [(buffer,)]) == [Status.FAILED]
                else:
                    failed = self.store.lookup(call.keys) == [None]
                why = (heard or [_in_words(None)])[0] if failed else ""
            except Exception as error:  # a defect of the backend; there is nobody else to tell
                why = repr(error)
        with self._lock:
            if call.late:
                self._hung_probes -= 1
                return
            self._begun.remove(call)
            self._probed(call, why or (self._too_long() if self._hangs(call) else ""))

    def _probed(self, call: _Call, why: str) -> None:
        """why: the reason if it failed."""
        if why and self.out:
            self._whole.failed_probe(self._now())
            return
        self._whole.probing, self._suspect = False, None
        if self.out:
            away = self._whole.back(self._now())
            for kind in (_Kind.LOOKUP, _Kind.READ):
                self._healths[kind].failures, self._healths[kind].spent_s = 0, 0.0
            self._say(f"answers again, after {away:.1f} s")
        elif why:
            self._go_out(call, why)
        elif self._writes.since is not None and not self._writes.told:
            self._losses.write_outages += 1
            self._writes.told = True
            self._say(
                f"takes no writes ({self._writes.why}); what it has is read, and new pages are not "
                "kept"
            )


def _on_a_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="storage-probe", daemon=True).start()


def _in_words(status: bool | Status | None) -> str:
    return "no room" if status is Status.FULL else "no answer"
