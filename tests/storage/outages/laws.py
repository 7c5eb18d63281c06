"""Drawn histories of stores that die, hang, refuse, flap and come back, and the laws that hold.

A history is a run of phases. In each the server has one fault, and look-ups, reads, writes and
deletes of drawn keys follow at drawn times of a virtual clock. `Judge` knows what may be stored and
compares every answer, count and notice. The faults are simulated.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict

from hicache.storage.base import Entry, Losses, Status, Storage, Value, step, tell
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.checksummed import Checksummed

from ..memory_store import MemoryStore

TIMEOUT_S = 1.0
OPTIONS = BreakerOptions(
    failures=3, patience_s=0.9 * TIMEOUT_S, slow_s=5.0, first_pause_s=1.0, longest_pause_s=8.0
)
FAULTS = (
    *("fine", "flowing", "dead", "hung", "stuck", "slow", "refusing", "full", "writes hang"),
    *("flapping", "lossy"),
)
WRITES_ALONE = ("refusing", "full", "writes hang")
PAUSES_S = (0.0, 0.0, 0.1, 0.7, 3.0, 20.0)


class Broken(AssertionError):
    """A law does not hold."""


class Clock:
    s = 0.0

    def __call__(self) -> float:
        return self.s


def value_of(key: str) -> bytes:
    """A key has one value, as the digest of a page has."""
    return random.Random(key).randbytes(40 + len(key))


class Faulty(Storage):
    """A store behind a server with a fault. calls: by kind. others: what other callers do while a
    call is stuck, for longer than anybody waits. meanwhile: what they do in other calls."""

    def __init__(self, store: Storage, clock: Clock, draw: random.Random) -> None:
        self.store, self.clock, self.draw = store, clock, draw
        self.fault = "fine"
        self.calls: Counter[str] = Counter()
        self.others: Callable[[], object] = lambda: None
        self.meanwhile: Callable[[], object] = lambda: None

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return [None] * len(keys) if self._fails("lookup") else self.store.lookup(keys)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        if self._fails("read"):
            return [Status.FAILED] * len(keys)
        return self.store.read(keys, values)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        if self.fault == "full":
            tell("no room")
        if self._fails("write") or self.fault in WRITES_ALONE:
            status = Status.FULL if self.fault == "full" else Status.FAILED
            if self.draw.random() < 0.1 and self.fault != "full":
                self.store.write(keys, values)  # it was done, and the answer was lost
            return [status] * len(keys)
        done = self.draw.randint(0, len(keys)) if self.fault == "lossy" else len(keys)
        result = self.store.write(keys[:done], values[:done]) if done else []
        return result + [Status.FAILED] * (len(keys) - done)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        return [Status.FAILED] * len(keys) if self._fails("delete") else self.store.delete(keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        return self.store.entries(prefix)

    def stats(self) -> dict[str, int | float | str]:
        return {}

    def close(self) -> None:
        self.store.close()

    def _fails(self, kind: str) -> bool:
        self.calls[kind] += 1
        if self.fault not in ("stuck", "slow", "flowing"):
            self.meanwhile()
        if self.fault == "hung" or (self.fault == "writes hang" and kind == "write"):
            self.clock.s += TIMEOUT_S
            tell("no answer in time")
        elif self.fault == "stuck":
            self.clock.s += OPTIONS.slow_s + self.draw.choice([0.1, 3.0])
            self.others()
        elif self.fault == "flowing":
            for _ in range(self.draw.choice([1, 2, 5])):
                self.clock.s += self.draw.choice([2.0, 4.9])
                self.others()
                step()
        elif self.fault == "slow":
            self.clock.s += self.draw.choice([0.0, 2.0, 4.9, 5.0, 5.1, 9.0])
        if self.fault == "flapping":
            return self.draw.random() < 0.6
        return self.fault in ("dead", "hung", "stuck")


class Judge:
    """What may be stored, and whether every answer, count and notice fits."""

    def __init__(self, clock: Clock) -> None:
        self.store: Storage = MemoryStore()
        self.clock = clock
        self.sure: dict[str, bool] = {}  # whether a key is there, where that is certain
        self.counted = Losses()
        self.notices: list[tuple[float, str]] = []
        self.state = "fine"
        self.nested = False  # in calls that end while another one is under way

    def notice(self, text: str) -> None:
        """One for each change: from each state, only some may follow."""
        message = {
            "does not answer (": ("out", ("fine", "no writes")),
            "answers again, after": ("fine", ("out",)),
            "takes no writes (": ("no writes", ("fine",)),
            "takes writes again, after": ("fine", ("no writes",)),
        }
        [(becomes, before)] = [result for words, result in message.items() if words in text]
        self.need(self.state in before, f"{self.state}, and then: {text}")
        self.state = becomes
        self.counted.outages += becomes == "out"
        self.counted.write_outages += becomes == "no writes"
        self.notices.append((self.clock.s, text))

    def need(self, holds: bool, law: str) -> None:
        if not holds:
            raise Broken(law)

    def lookup(self, keys: Sequence[str]) -> bool:
        answers = self.store.lookup(keys)
        for key, there in zip(keys, answers, strict=True):
            self.counted.lookups_unanswered += there is None
            if there is not None and key in self.sure:
                self.need(there is self.sure[key], f"look-up of {key}: {there}")
        return self._done(None not in answers)

    def read(self, keys: Sequence[str]) -> bool:
        values = [(memoryview(bytearray(len(value_of(key)))),) for key in keys]
        answers = self.store.read(keys, values)
        for key, status, (result,) in zip(keys, answers, values, strict=True):
            self.counted.reads_failed += status is Status.FAILED
            self.counted.reads_missing += status is Status.MISSING
            self.counted.reads_corrupt += status is Status.CORRUPT
            self.need(status is not Status.DONE or bytes(result) == value_of(key), "wrong bytes")
            if status in (Status.MISSING, Status.CORRUPT):
                self.need(self.sure.get(key) is not True, f"{key} was acknowledged and is gone")
        return self._done(Status.FAILED not in answers)

    def write(self, keys: Sequence[str]) -> bool:
        answers = self.store.write(keys, [(memoryview(value_of(key)),) for key in keys])
        for key, status in zip(keys, answers, strict=True):
            self.counted.writes_refused += status is not Status.DONE
            self._learn(key, True, status is Status.DONE)
        return self._done(set(answers) == {Status.DONE})

    def delete(self, keys: Sequence[str]) -> bool:
        answers = self.store.delete(keys)
        for key, status in zip(keys, answers, strict=True):
            self.counted.deletes_failed += status is Status.FAILED
            self._learn(key, False, status is not Status.FAILED)
        return self._done(Status.FAILED not in answers)

    def _learn(self, key: str, there: bool, done: bool) -> None:
        """A write or a delete of a key was done, or nobody knows."""
        if done:
            self.sure[key] = there
        elif self.sure.get(key) is not there:
            self.sure.pop(key, None)

    def _done(self, well: bool) -> bool:
        """Compares all counts but those that no caller sees. A call under way may be counted."""
        if self.nested:
            return well
        result = asdict(self.store.losses) | {"late": 0, "waited_s": 0.0}
        self.need(result == asdict(self.counted), f"{result} counted, {asdict(self.counted)} seen")
        return well


def draw_keys(draw: random.Random, name: str) -> list[str]:
    numbers = [draw.randint(0, 11) for _ in range(draw.randint(1, 4))]
    return [f"{'c' * 64}/{name}/0of1/{number:064x}" for number in dict.fromkeys(numbers)]


def act(judge: Judge, draw: random.Random, name: str) -> tuple[str, bool]:
    """One drawn call. Returns its kind, and whether it was answered."""
    kind = draw.choice(["lookup", "lookup", "lookup", "read", "read", "write", "write", "delete"])
    if kind == "delete" and draw.random() < 0.6:
        kind = "read"
    return kind, getattr(judge, kind)(draw_keys(draw, name))


class Meanwhile:
    """Calls of other callers while a call of the store is under way. They end before it does. A
    server that flaps may be dead for as long."""

    def __init__(self, judge: Judge, faulty: Faulty, draw: random.Random, name: str) -> None:
        self._judge, self._faulty, self._draw, self._name = judge, faulty, draw, name
        self._share = draw.choice([0.0, 0.1, 0.5])  # of calls

    def __call__(self) -> None:
        if self._judge.nested or self._draw.random() >= self._share:
            return
        self._judge.nested, fault = True, self._faulty.fault
        if fault == "flapping":
            self._faulty.fault = self._draw.choice([fault, "dead"])
        for _ in range(self._draw.choice([1, 2, 4])):
            act(self._judge, self._draw, self._name)
        self._judge.nested, self._faulty.fault = False, fault


def play(draw: random.Random, name: str) -> Judge:
    """One history. Raises Broken."""
    clock = Clock()
    faulty = Faulty(MemoryStore(), clock, draw)
    jobs: list[Callable[[], None]] = []
    start = jobs.append if draw.random() < 0.5 else (lambda job: job())
    judge = Judge(clock)
    breaker = Breaker(faulty, name, clock, judge.notice, OPTIONS, start)
    judge.store = Checksummed(breaker)
    faulty.others = breaker.poll
    faulty.meanwhile = Meanwhile(judge, faulty, draw, name)
    for _ in range(draw.randint(1, 6)):
        phase(judge, faulty, jobs, draw, name)
    faulty.fault = "fine"
    recover(judge, clock, jobs, name)
    return judge


def phase(
    judge: Judge, faulty: Faulty, jobs: list[Callable[[], None]], draw: random.Random, name: str
) -> None:
    """Some calls under one fault."""
    fault = faulty.fault = draw.choice(FAULTS)
    began_well = judge.state != "out"
    timed_out, in_a_row = 0, Counter[str]()
    for _ in range(draw.randint(1, 25)):
        judge.clock.s += draw.choice(PAUSES_S)
        was_out, before = judge.state == "out", faulty.calls.copy()
        spent, count = judge.clock.s, len(judge.notices)
        kind, well = act(judge, draw, name)
        calls = faulty.calls - before
        in_a_row[kind] = 0 if well else in_a_row[kind] + bool(calls[kind])
        if len(judge.notices) > count:
            in_a_row.clear()  # what was told begins anew
        while jobs and draw.random() < 0.7:
            jobs.pop(0)()
        if was_out and len(judge.notices) == count:
            judge.need(calls.total() <= 1, f"{calls} while it was out, and none but a probe")
        if fault == "hung" and kind in ("lookup", "read") and not was_out and not well:
            timed_out += judge.clock.s > spent
        if fault in WRITES_ALONE and began_well:
            judge.need(judge.state != "out", "refused writes cost the reads")
            judge.need(well or kind == "write", f"{kind} failed, and only writes are refused")
        if fault in ("fine", "flowing") and began_well and kind != "write":
            judge.need(well, f"{kind} failed, and nothing is wrong")
    if (
        fault in ("dead", "hung", "stuck")
        and max(in_a_row["lookup"], in_a_row["read"]) >= OPTIONS.failures
    ):
        judge.need(judge.state == "out", "it is dead, and nobody was told")
    if fault in WRITES_ALONE and in_a_row["write"] >= OPTIONS.failures and not jobs:
        judge.need(judge.state != "fine", "it takes no writes, and nobody was told")
    judge.need(timed_out <= 1, f"{timed_out} look-ups or reads waited for the same outage")


def recover(judge: Judge, clock: Clock, jobs: list[Callable[[], None]], name: str) -> None:
    """The longest pause and one probe later it is used again, for reads and for writes."""
    key = f"{'c' * 64}/{name}/0of1/{'f' * 64}"
    for job in jobs:
        job()
    jobs.clear()
    for _ in range(2):  # a pause for reads, and one for writes
        clock.s += OPTIONS.longest_pause_s + 0.1
        judge.write([key])
        for job in jobs:
            job()
        jobs.clear()
    judge.need(judge.write([key]) and judge.read([key]) and judge.lookup([key]), "not back")
    judge.need(judge.state == "fine", f"it is back, and the last word was: {judge.state}")


def play_many(histories: int, seed: int) -> Counter[str]:
    """Returns what they met."""
    met: Counter[str] = Counter()
    for number in range(histories):
        try:
            judge = play(random.Random(f"{seed}/{number}"), f"h{number}")
        except AssertionError as error:
            raise Broken(f"seed {seed}, history {number}: {error!r}") from error
        met.update({name: round(count) for name, count in asdict(judge.counted).items()})
    return met
