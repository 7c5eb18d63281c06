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

from .base import Entry, Losses, Status, Storage, Value, listening, watching

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
    answer decides. late: it was judged already."""

    kind: _Kind
    keys: Sequence[str]
    value_bytes: int  # of the first value
    began_s: float
    moved_s: float = field(init=False)
    probe: bool = False
    late: bool = False
    heard: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.moved_s = self.began_s


class _Health:
    """Whether calls of one kind fare well: failures in a row, an outage, and the pauses between
    probes. why: the reason of the outage. told: whether a person was told of it."""

    def __init__(self, first_pause_s: float, longest_pause_s: float) -> None:
        self._first_s, self._longest_s = first_pause_s, longest_pause_s
        self._failures = 0  # in a row
        self._spent_s = 0.0  # in these
        self._out_since: float | None = None
        self._back_at: float | None = None
        self._pause = first_pause_s
        self._probe_at = float("-inf")
        self._probing = False
        self.why = ""
        self.told = False

    @property
    def is_out(self) -> bool:
        return self._out_since is not None

    def answered(self) -> None:
        self._failures, self._spent_s = 0, 0.0

    def failed(self, seconds: float, whole: bool) -> None:
        """A call has failed. whole: for all of its values."""
        self._failures = self._failures + 1 if whole else 0
        self._spent_s += seconds

    def is_over(self, failures: int, patience_s: float) -> bool:
        """Whether that is too much."""
        return self._failures >= failures or self._spent_s >= patience_s

    def go_out(self, now: float, why: str) -> None:
        """The first pause is longer than the last one if it was back for a short time only."""
        stayed = self._back_at is None or now - self._back_at > self._longest_s
        self._pause = self._first_s if stayed else min(2 * self._pause, self._longest_s)
        self._out_since, self.why, self.told = now, why, False
        self._probe_at = now + self._pause

    def back(self, now: float) -> float:
        """Returns for how long it was out."""
        assert self._out_since is not None
        away = now - self._out_since
        self._back_at = now
        self.forget()
        return away

    def forget(self) -> None:
        """It counts as well again."""
        self._out_since, self._probing, self.told = None, False, False
        self.answered()

    def begin_probe(self, now: float) -> bool:
        """Whether the pause is over and no probe is under way. Then one has begun."""
        if self._probing or now < self._probe_at:
            return False
        self._probing = True
        return True

    def end_probe(self) -> None:
        self._probing = False

    def failed_probe(self, now: float) -> None:
        """The next one comes after twice the pause."""
        self._probing = False
        self._pause = min(2 * self._pause, self._longest_s)
        self._probe_at = now + self._pause


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
        self.store = store
        self._name, self._now, self._notice = name, now, notice
        self._options = options or BreakerOptions()
        self._start = start or _on_a_thread
        self._lock = threading.Lock()
        self._begun: list[_Call] = []  # under way
        self._closed = False
        self._losses = Losses()
        pauses = self._options.first_pause_s, self._options.longest_pause_s
        self._reads = {kind: _Health(*pauses) for kind in (_Kind.LOOKUP, _Kind.READ)}
        self._writes = _Health(*pauses)
        self._whole = _Health(*pauses)  # whether it answers at all
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

    def read_checked(
        self, keys: Sequence[str], values: Sequence[Value], check: Callable[[int], bool]
    ) -> list[Status]:
        ask = partial(self.store.read_checked, keys, values, check)
        return self._ask(_Kind.READ, keys, values, ask, Status.FAILED)

    def write_sealed(
        self, keys: Sequence[str], values: Sequence[Value], seal: Callable[[int], None]
    ) -> list[Status]:
        ask = partial(self.store.write_sealed, keys, values, seal)
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

    def register(self, memory: Sequence[memoryview]) -> None:
        self.store.register(memory)

    @property
    def out(self) -> bool:
        """Whether the store counts as out."""
        return self._whole.is_out

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
        with self._lock:
            self._judge_hanging()
        self._probe_if_due()
        size = sum(buffer.nbytes for buffer in values[0]) if values else 0
        with self._lock:
            call = _Call(kind, keys, size, self._now())
            if not self._may_ask(call):
                self.refused += 1
                self._count(kind, [failed] * len(keys))
                return [failed] * len(keys)
            self._begun.append(call)
        answers = [failed] * len(keys)  # if it raises
        try:
            with listening() as call.heard, watching(partial(self._moved, call)):
                answers = ask()
        finally:
            self._ended(call, answers)
        return answers

    def _may_ask(self, call: _Call) -> bool:
        if self.out:
            return False
        if call.kind is _Kind.WRITE and self._writes.is_out:
            call.probe = self._writes.begin_probe(call.began_s)
            return call.probe
        return True

    def _ended(self, call: _Call, answers: Sequence[bool | Status | None]) -> None:
        with self._lock:
            if call.late:
                self._losses.late += 1
                return
            self._begun.remove(call)
            self._judge(call, answers, self._too_long() if self._hangs(call) else "")
        self._probe_if_due()

    def _judge(self, call: _Call, answers: Sequence[bool | Status | None], slow: str) -> None:
        """What a call says about the store. slow: the reason if it took too long."""
        now = self._now()
        self._count(call.kind, answers)
        wrong = [one for one in answers if one is None or one in _LOST]
        if wrong or slow:
            self._losses.waited_s += now - call.began_s
        if self._closed:
            return  # closing makes calls fail
        health = self._writes if call.kind is _Kind.WRITE else self._reads.get(call.kind)
        if health is None:
            if slow:
                self._suspect = self._suspect or call
        elif not wrong and not slow:
            health.answered()
            if call.probe and health.is_out:  # it may have been forgotten since
                self._writes_again()
        else:
            waited = 0.0 if wrong and set(wrong) == {Status.FULL} else now - call.moved_s
            health.failed(waited, whole=bool(slow) or len(wrong) == len(answers))
            if call.probe:
                health.failed_probe(self._now())
            elif slow or health.is_over(self._options.failures, self._options.patience_s):
                self._gone(call, slow or (call.heard or [_in_words(wrong[0])])[0])

    def _gone(self, call: _Call, why: str) -> None:
        """Calls of this kind fail: the store is out, or takes no writes."""
        if call.kind is not _Kind.WRITE:
            self._go_out(call, why)
        elif not self._writes.is_out and not self.out:
            self._writes.go_out(self._now(), why)
            self._suspect = self._suspect or call  # it may be dead: a probe shows which

    def _go_out(self, call: _Call, why: str) -> None:
        if self.out:
            return
        now = self._now()
        self._losses.outages += 1
        self._whole.go_out(now, why)
        self._suspect = replace(call, keys=call.keys[:1])
        self._writes.forget()  # it is found out anew
        self._notice(
            f"storage: {self._name} does not answer ({why}); going on without it, and asking "
            "again now and then"
        )

    def _back(self) -> None:
        away = self._whole.back(self._now())
        self._suspect = None
        for health in self._reads.values():
            health.answered()
        self._notice(f"storage: {self._name} answers again, after {away:.1f} s")

    def _refuses(self) -> None:
        """It answers, and takes no writes."""
        self._losses.write_outages += 1
        self._writes.told = True
        self._notice(
            f"storage: {self._name} takes no writes ({self._writes.why}); what it has is read, and "
            "new pages are not kept"
        )

    def _writes_again(self) -> None:
        told = self._writes.told
        away = self._writes.back(self._now())
        if told:
            self._notice(f"storage: {self._name} takes writes again, after {away:.1f} s")

    def _judge_hanging(self) -> None:
        """Give up on calls that have been under way for too long."""
        for call in [one for one in self._begun if self._hangs(one)]:
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
        return self._now() - call.moved_s > self._options.slow_s

    def _too_long(self) -> str:
        return f"a call has taken more than {self._options.slow_s:g} s without progress"

    def _count(self, kind: _Kind, answers: Sequence[bool | Status | None]) -> None:
        losses = self._losses
        if kind is _Kind.LOOKUP:
            losses.lookups_unanswered += sum(one is None for one in answers)
        elif kind is _Kind.READ:
            losses.reads_failed += sum(one in _LOST for one in answers)
            losses.reads_missing += sum(one is Status.MISSING for one in answers)
            losses.reads_corrupt += sum(one is Status.CORRUPT for one in answers)
        elif kind is _Kind.WRITE:
            losses.writes_refused += sum(one is not Status.DONE for one in answers)
        elif kind is _Kind.DELETE:
            losses.deletes_failed += sum(one in _LOST for one in answers)

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
                self._whole.end_probe()
                return
            call = _Call(_Kind.PROBE, what.keys[:1], what.value_bytes, self._now())
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
        self._whole.end_probe()
        if self.out:
            self._back()
            return
        self._suspect = None
        if why:
            self._go_out(call, why)
        elif self._writes.is_out and not self._writes.told:
            self._refuses()


def _on_a_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="storage-probe", daemon=True).start()


def _in_words(status: bool | Status | None) -> str:
    return "no room" if status is Status.FULL else "no answer"
