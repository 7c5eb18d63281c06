"""A store that is dead, hangs or refuses costs little, and says so: once, and why.

A wrapper over any store, in one of three states:

    fine       every call goes to the store
    no writes  several writes in a row were refused; reads go on, and a write is tried now and then
    out        several look-ups or reads in a row failed, waited too long together, or one made no
               progress (`step`) for too long: nothing is asked

The smallest part of what failed is then repeated by a *probe*, on a thread of its own; nobody waits
for it. It shows that a store which takes no writes is not dead, and brings back one that is out.
Pauses double, also from one outage to the next, as long as the store does not stay.

There is one notice for each change of state, with the first reason that the store gave (`tell`).
What was not answered, read or stored is counted (`losses`). A call under way goes on: the buffers
of a read belong to the store until it answers.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from .base import Entry, Losses, Status, Storage, Value, listening, size_of, watching

SLOW_S = 5.0
_LOST = (None, Status.FAILED, Status.FULL)


@dataclass(frozen=True, slots=True)
class BreakerOptions:
    """failures: calls in a row that must fail. patience_s: seconds that failed calls in a row may
    wait together without progress; one that waits as long is enough. slow_s: a call that makes no
    progress for longer has failed. first_pause_s, longest_pause_s: between trials."""

    failures: int = 5
    patience_s: float = 0.9
    slow_s: float = SLOW_S
    first_pause_s: float = 1.0
    longest_pause_s: float = 60.0


@dataclass(slots=True, eq=False)
class _Call:
    """One call of the store. kind: the method. value_bytes: of the first value. moved_s: when it
    began, or last made progress. late: it was judged before its end. heard: why values failed."""

    kind: str
    keys: Sequence[str]
    value_bytes: int
    began_s: float
    moved_s: float
    probe: bool = False
    late: bool = False
    heard: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Any]:
        return [None if self.kind == "lookup" else Status.FAILED] * len(self.keys)


@dataclass(slots=True)
class _Outage:
    """Of all calls, or of writes. since: None if there is none."""

    options: BreakerOptions
    since: float | None = None
    back_at: float = float("-inf")
    pause: float = 0.0
    trial_at: float = float("-inf")

    def begin(self, now: float) -> None:
        """The pause goes on from that of the last outage if the store was back for a short time."""
        if now - self.back_at > self.options.longest_pause_s:
            self.pause = self.options.first_pause_s
        self.since, self.trial_at = now, now + self.pause

    def end(self, now: float) -> float:
        """Returns how long it was."""
        away = now - (self.since or 0.0)
        self.since, self.back_at = None, now
        return away

    def is_due(self, now: float) -> bool:
        """Whether the pause is over. Then the next one has begun."""
        if now < self.trial_at:
            return False
        self.pause = min(2 * self.pause, self.options.longest_pause_s)
        self.trial_at = now + self.pause
        return True


class Breaker(Storage):
    """A store that is asked only while it answers. now: seconds of a clock that never goes back.
    notice: gets a sentence for each change. start: runs a probe, by default on a thread."""

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
        self._closed = self._probing = False
        self._losses = Losses()
        self._failing: dict[str, tuple[int, float]] = {}  # calls in a row, and their seconds
        self._all_calls, self._writes = _Outage(self._options), _Outage(self._options)
        self._suspect: tuple[_Call, str] | None = None  # what a probe is to repeat, and the reason

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
                self._judge(call, call.failed)
        self._probe_if_due()
        return self._losses.outages - self.out

    def close(self) -> None:
        self._closed = True
        self.store.close()

    @property
    def out(self) -> bool:
        """Whether the store counts as out."""
        return self._all_calls.since is not None

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
            if self.out or (kind == "write" and not self._takes_writes(now)):
                self._count(kind, call.failed)
                return call.failed
            self._under_way.append(call)
        try:
            return self._run(call, *values)
        finally:
            self._probe_if_due()

    def _takes_writes(self, now: float) -> bool:
        """Or may: a write is tried after each pause, once a probe has shown that reads go on."""
        return self._writes.since is None or (self._suspect is None and self._writes.is_due(now))

    def _run(self, call: _Call, *values: Sequence[Value]) -> list[Any]:
        """The answers of the store."""
        answers = call.failed
        try:
            with listening() as call.heard, watching(partial(self._moved, call)):
                ask: Callable[..., list[Any]] = getattr(self.store, call.kind)
                answers = ask(call.keys, *values)
        except Exception as error:  # a defect of the backend
            call.heard = [repr(error)]
        finally:
            with self._lock:
                if call.late:
                    self._losses.late += not call.probe
                else:
                    self._under_way.remove(call)
                    self._judge(call, answers)
                self._probing = self._probing and not call.probe
        return answers

    def _judge(self, call: _Call, answers: Sequence[bool | Status | None]) -> None:
        """What a call says about the store."""
        now, kind = self._now(), call.kind
        lost, hangs = [answer for answer in answers if answer in _LOST], self._hangs(call)
        failed = hangs or len(lost) == len(answers)
        why = (call.heard or ["no room" if Status.FULL in lost else "no answer"])[0]
        if hangs:
            why = f"a call has taken more than {self._options.slow_s:g} s without progress"
        if call.probe:
            self._probed(why if failed else "")
            return
        self._count(kind, answers)
        if lost or hangs:
            self._losses.waited_s += now - call.began_s
        if self._closed:
            return  # closing makes calls fail
        if not failed:
            self._failing.pop(kind, None)
            if kind == "write" and self._writes.since is not None:
                away = self._writes.end(now)
                if self._suspect is None:  # else nobody knows that it took none
                    self._say(f"takes writes again, after {away:.1f} s")
            return
        failures, waited_s = self._failing.get(kind, (0, 0.0))
        failures, waited_s = failures + 1, waited_s + now - call.moved_s
        self._failing[kind] = failures, waited_s
        over = hangs or failures >= self._options.failures or waited_s >= self._options.patience_s
        if not over or self.out or kind == "delete":
            return
        if kind != "write":
            self._go_out(call, why)
        elif self._writes.since is None:
            self._writes.begin(now)
            self._suspect = call, why

    def _go_out(self, call: _Call, why: str) -> None:
        self._losses.outages += 1
        self._all_calls.begin(self._now())
        self._suspect = call, why
        self._writes.since = None  # it is found out anew
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
        """Begin a probe if something is to be found out, the pause is over, and none hangs."""
        with self._lock:
            if self._suspect is None or self._closed or self._probing:
                return
            self._probing = not self.out or self._all_calls.is_due(self._now())
            begins = self._probing
        if begins:
            self._start(self._probe)

    def _probe(self) -> None:
        """Look up or read the first value of the call that failed, into memory of its own."""
        with self._lock:
            assert self._suspect is not None, "only a probe clears it, and there is one"
            suspect, now = self._suspect[0], self._now()
            kind = "read" if suspect.kind == "read" else "lookup"
            call = _Call(kind, suspect.keys[:1], suspect.value_bytes, now, now, probe=True)
            self._under_way.append(call)
        values = [[(memoryview(bytearray(call.value_bytes)),)]] if kind == "read" else []
        self._run(call, *values)

    def _probed(self, why: str) -> None:
        """why: the reason if it failed."""
        if self._suspect is None or (why and self.out):
            return  # it is asked again after the next pause
        (call, reason), self._suspect = self._suspect, None
        if self.out:
            self._failing.clear()
            self._say(f"answers again, after {self._all_calls.end(self._now()):.1f} s")
        elif why:
            self._go_out(call, why)
        elif self._writes.since is not None:
            self._losses.write_outages += 1
            kept = "what it has is read, and new pages are not kept"
            self._say(f"takes no writes ({reason}); {kept}")


def _on_a_thread(job: Callable[[], None]) -> None:
    threading.Thread(target=job, name="storage-probe", daemon=True).start()
