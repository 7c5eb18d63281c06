"""Drawn histories of a store on a full, failing, hanging or bounded medium, and a plain model.

A history writes, reads, deletes, spoils, opens again and kills, while faults come and go. The laws:

- what is served is what was written under that key, the last acknowledged value or a later one
- nothing is served that nobody wrote, and only what was spoilt or is too long is found corrupt
- what was acknowledged is there, or counted: evicted or lost
- what counts as room of the file is reserved on the disk, and all of it is a value's or free
- nothing is evicted that was used later than everything that stays, or without its whole page
- what was not done is counted; a call that was given up touches no buffer later
- the store keeps to its size, and refuses nothing that has room
- every call ends with a status, and the store can be opened whatever the medium refuses
- when the fault is over, the store takes writes again, and all room is a value's or free
"""

import os
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage.base import Status, Value
from hicache.storage.breaker import Breaker
from hicache.storage.checksummed import HEADER_BYTES, Checksummed, header_of
from tests.needs import eventually

from .mediums import SLOT, Fault, Subject

STEPS = 24
SIZES = (1, 700, 4096 - HEADER_BYTES, 4097, 9000, 20_000, 70_000)
PAINT = b"\xaa"


def value_of(key: str, version: int, size: int) -> bytes:
    return (random.Random(f"{key} {version}").randbytes(64) * (size // 64 + 1))[:size]


@dataclass
class Model:
    """What a store may have. may: of each key, the versions that may be served. promised: the keys
    that must be there, or be counted. used: when the page of a key was used last. unsure: pages of
    which it does not know that, because a write of them was refused at some point."""

    sizes: dict[str, int] = field(default_factory=dict)
    may: dict[str, set[int]] = field(default_factory=dict)
    promised: set[str] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    gone: int = 0  # values that were counted as evicted or lost
    now: int = 0

    def use(self, page: str) -> None:
        self.now += 1
        self.used[page] = self.now
        self.unsure.discard(page)


class History:
    """One history. drawn: decides everything."""

    def __init__(self, subject: Subject, drawn: random.Random) -> None:
        self.subject, self.drawn = subject, drawn
        self.model = Model()
        self.result_of: Counter[str] = Counter()
        self.fault: Fault | None = None
        self.ending = ExitStack()
        self.ordered = subject.ordered  # the model knows the order of use
        self.version = 0
        self.spoilt: set[str] = set()
        self.late: set[str] = set()  # keys whose write or delete may still be done
        self.given_up: list[memoryview] = []
        self.written: set[str] = set()  # pages, in this step
        self.context = f"{drawn.getrandbits(256):064x}"
        sizes = drawn.sample(SIZES, drawn.choice((1, 1, 2, 3)))
        shards = drawn.choice((1, 1, 2))
        self.pages = [f"{number:064x}" for number in range(drawn.choice(subject.pages))]
        self.keys = [
            f"{self.context}/kv/{shard}of{shards}/{page}"
            for page in self.pages
            for shard in range(shards)
        ]
        self.model.sizes = {key: drawn.choice(sizes) for key in self.keys}
        self.alike = len(sizes) == 1
        self.store = self.opened()

    def opened(self, hasty: bool = False) -> Checksummed:
        self.corrupt = 0  # values that this open store found so
        try:
            return Checksummed(self.subject.open(hasty))
        except CallerError:
            assert self.fault, "it could not be opened"
            assert not self.fault.opens, "it could not be opened"
            self.result_of["not opened"] += 1
        self.end()
        return Checksummed(self.subject.open())

    def play(self) -> Counter[str]:
        steps: dict[str, Callable[[], None]] = {
            "write": self.write,
            "read": self.read,
            "delete": self.delete,
            "again": self.again,
            "fault": self.begin,
            "end": self.end,
            "kill": self.kill,
            "other": self.other,
            "spoil": self.spoil,
        }
        try:
            for _ in range(STEPS):
                [name] = self.drawn.choices([*steps], self.subject.weights)
                steps[name]()
                self.judge(name)
                self.written.clear()
            self.end()
            self.judge("last")
            self.takes_writes()
            self.can_be_emptied()
        finally:
            self.ending.close()
            self.store.close()
        assert not any(bytes(view).strip(PAINT) for view in self.given_up), "touched later"
        self.result_of["histories"] += 1
        return self.result_of

    def ask(self, kind: str, keys: Sequence[str], *values: Sequence[Value]) -> list[Any]:
        """The answers of the store."""
        answers: list[Any] = getattr(self.store, kind)(keys, *values)
        self.corrupt += answers.count(Status.CORRUPT)
        assert self.store.stats()["corrupt"] == self.store.losses.reads_corrupt == self.corrupt
        breaker, failed = self.store.store, {None, Status.FAILED}
        if isinstance(breaker, Breaker) and kind in ("lookup", "read") and answers:
            assert breaker.out or not set(answers) <= failed, "it hangs, and goes on being asked"
        return answers

    def some(self, most: int) -> list[str]:
        return self.drawn.sample(self.keys, min(len(self.keys), self.drawn.randint(1, most)))

    def write(self) -> None:
        keys = self.some(8)
        if self.drawn.random() < 0.7:  # of one size
            keys = [key for key in keys if self.model.sizes[key] == self.model.sizes[keys[0]]]
        before, version = self.uses(), self.version + 1
        asked = not getattr(self.store.store, "out", False)
        statuses = self.write_to(keys)
        self.acknowledge(keys, statuses, version)
        if asked and self.fault and self.fault.hangs and "used_bytes" in self.store.store.stats():
            assert self.room_left(), "a late write would touch what is another's"
        if not self.fault or set(statuses) == {Status.DONE}:
            self.judge_order(before, keys)  # else a segment was held by a part of the batch

    def write_to(self, keys: Sequence[str]) -> list[Status]:
        self.version += 1
        texts = [value_of(key, self.version, self.model.sizes[key]) for key in keys]
        return self.ask("write", keys, [self.parts(text) for text in texts])

    def parts(self, text: bytes | bytearray) -> Value:
        """In buffers, some of them empty, or more than a call of the system takes."""
        view, at = memoryview(text), self.drawn.randint(0, len(text))
        step = self.drawn.choice((len(text) // 1500, 5000, 50_000)) + 1
        return view[:at], view[:0], *(view[to : to + step] for to in range(at, len(text), step))

    def acknowledge(self, keys: Sequence[str], statuses: Sequence[Status], version: int) -> None:
        for key, status in zip(keys, statuses, strict=True):
            self.result_of[f"{self.fault.name if self.fault else 'no fault'}: write {status}"] += 1
            assert status in (Status.DONE, Status.FULL, Status.FAILED), status
            self.written.add(_page(key))
            if status is Status.DONE:
                self.model.may[key] = {version}
                self.model.promised.add(key)
                self.model.use(_page(key))
                self.spoilt.discard(key)
            else:
                self.is_late(key)
                self.model.may.setdefault(key, set()).add(version)
                self.model.unsure.add(_page(key))
        if not self.fault:
            fits = self.subject.capacity([self.model.sizes[key] for key in keys])
            refused = [status for status in statuses if status is not Status.DONE]
            assert len(refused) <= max(0, len(keys) - fits), f"refused: {statuses}, room for {fits}"

    def is_late(self, key: str) -> None:
        """Its write or delete failed, and may be done all the same, at any time."""
        if self.fault and self.fault.hangs:
            self.late.add(key)
            self.model.promised.discard(key)

    def read(self) -> None:
        keys = self.some(12)
        self.read_some(keys)
        if not self.fault:
            self.read_lengths(keys)

    def read_some(self, keys: Sequence[str]) -> None:
        there = self.ask("lookup", keys)
        values = [self.parts(bytearray(self.model.sizes[key])) for key in keys]
        statuses = self.ask("read", keys, values)
        for key, known, status, value in zip(keys, there, statuses, values, strict=True):
            if status is Status.FAILED:
                assert self.fault, "a read failed without a fault"
                self.paint(value)
            elif status is Status.DONE:
                assert self.knows(key, b"".join(value)), f"{key} has other bytes"
                self.model.use(_page(key))
            elif status is Status.CORRUPT:
                assert key in self.spoilt, f"{key} was found corrupt"
                self.model.promised.discard(key)
                if not self.fault:  # else it may not be deleted
                    self.forget(key)
            assert self.fault or known is (status is not Status.MISSING), f"{known}: {status}"
            self.result_of[f"read {status}"] += 1

    def read_lengths(self, keys: Sequence[str]) -> None:
        """Into buffers of drawn lengths, as the store itself tells them."""
        there = self.ask("lookup", keys)
        right = [HEADER_BYTES + self.model.sizes[key] for key in keys]
        sizes = [size + self.drawn.choice((0, 0, -1, 1, 5000)) for size in right]
        statuses = self.store.store.read(keys, [self.parts(bytearray(size)) for size in sizes])
        for at, key in enumerate(keys):
            fits = Status.DONE if sizes[at] == right[at] else Status.CORRUPT
            if key not in self.spoilt:
                assert statuses[at] is (fits if there[at] else Status.MISSING), statuses
            if statuses[at] is Status.DONE:
                self.model.use(_page(key))

    def paint(self, value: Value) -> None:
        for buffer in value:
            buffer[:] = PAINT * buffer.nbytes
            self.given_up.append(buffer)

    def forget(self, key: str) -> None:
        """It is gone."""
        self.model.may.pop(key, None)
        self.model.promised.discard(key)
        self.spoilt.discard(key)

    def delete(self) -> None:
        keys = self.some(4)
        there = self.ask("lookup", keys)
        for key, known, status in zip(keys, there, self.ask("delete", keys), strict=True):
            if status in (Status.DONE, Status.MISSING):
                right = Status.DONE if known or not self.subject.misses else Status.MISSING
                assert self.fault or status is right, f"{known}: {status}"
                if status is Status.MISSING and key in self.model.promised:
                    continue  # it was evicted, which is counted at the end of the step
                self.forget(key)
            else:
                assert self.fault, "a delete failed without a fault"
                self.model.promised.discard(key)
                self.is_late(key)

    def spoil(self) -> None:
        """Somebody puts a cut, empty or foreign value in the place of one."""
        if self.fault:
            return
        key, other = self.drawn.sample(self.keys, 2)
        size = self.model.sizes[key]
        foreign = value_of(other, self.version, size)
        text = header_of(other, (memoryview(foreign),)) + foreign
        text = self.drawn.choice((text, text[: self.drawn.randrange(len(text))], bytes(len(text))))
        statuses = self.store.store.write([key], [self.parts(text)])
        self.acknowledge([key], statuses, 0)
        if statuses == [Status.DONE]:
            self.spoilt.add(key)

    def again(self) -> None:
        if self.fault and self.fault.hangs:
            return
        self.store.close()
        self.ordered = self.ordered and not self.fault
        self.store = self.opened()

    def begin(self) -> None:
        if self.fault is None and self.subject.faults:
            fault = self.drawn.choice(self.subject.faults)
            if fault.hangs:
                self.store.close()
                self.store = self.opened(hasty=True)
            self.fault = fault
            self.ending.enter_context(self.fault.lasts(self.drawn))
            self.result_of[f"fault {self.fault.name}"] += 1

    def end(self) -> None:
        hung = self.fault is not None and self.fault.hangs
        self.ending.close()
        self.fault = None
        if hung:
            eventually(lambda: None not in self.ask("lookup", self.keys[:1]))
            eventually(lambda: not self.room_left())
            self.again()
            self.keys = [self.instead(key) if key in self.late else key for key in self.keys]
            self.late.clear()

    def instead(self, key: str) -> str:
        """A key of which it is known that nothing is there."""
        self.version += 1
        new = f"{key[:-8]}f{self.version:07x}"
        self.model.sizes[new] = self.model.sizes[key]
        return new

    def other(self) -> None:
        """Another store on the same place writes."""
        if self.fault is None:
            keys, self.ordered = self.some(8), False
            self.store.close()  # else what it could not give back during a fault is its own
            first, self.store = self.opened(), self.opened()
            self.acknowledge(keys, self.write_to(keys), self.version)
            self.store.close()
            self.store, self.corrupt = first, 0

    def kill(self) -> None:
        """Another process writes, and dies at a drawn call."""
        self.store.close()
        keys, calls = self.some(8), self.drawn.randint(1, 25)
        reader, pipe = os.pipe()
        child = os.fork()
        if not child:
            try:
                self.subject.die_after(calls)
                with closing(self.opened()) as self.store:
                    done = self.write_to(keys)
                    os.write(pipe, bytes([status is Status.DONE for status in done]))
            finally:
                os._exit(0)
        os.close(pipe)
        with open(reader, "rb") as stream:
            done = list(stream.read())
        os.waitpid(child, 0)
        self.version += 1
        self.ordered = False
        self.written |= set(map(_page, keys))
        for key, number in zip(keys, done or [False] * len(keys), strict=True):
            if number:
                self.model.may[key] = {self.version}
                self.model.promised.add(key)
            else:
                self.model.may.setdefault(key, set()).add(self.version)
        self.result_of["kills"] += 1
        self.store = self.opened()

    def knows(self, key: str, text: bytes) -> bool:
        size = self.model.sizes[key]
        return any(text == value_of(key, number, size) for number in self.model.may.get(key, ()))

    def uses(self) -> dict[str, int]:
        """When what is stored was used."""
        there = zip(self.keys, self.ask("lookup", self.keys), strict=True)
        return {_page(key): self.model.used.get(_page(key), 0) for key, item in there if item}

    def judge_order(self, before: dict[str, int], written: Sequence[str]) -> None:
        """See that what a write evicted was colder than what stayed."""
        sizes = {self.model.sizes[key] for key in written}
        if not self.ordered or len(sizes) > 1:
            return
        new = {_page(key) for key in written} | self.model.unsure
        after = self.uses()
        gone = [use for page, use in before.items() if page not in after and page not in new]
        stays = [use for page, use in before.items() if page in after and page not in new]
        if gone and stays:
            self.result_of["evictions judged"] += 1
            strict = self.alike and not self.fault and not self.subject.disk
            if not strict and len(self.keys) > len(self.pages):
                return  # segments that share a page are equally cold, and one of them must go
            least = min(stays) if strict else max(stays)
            assert max(gone) < least, f"gone: {sorted(gone)}, stays: {sorted(stays)}"

    def judge(self, step: str) -> None:
        """Count what is not there any more. Looks without using."""
        there = dict(zip(self.keys, self.ask("lookup", self.keys), strict=True))
        stats = self.store.stats()
        if self.fault and not (any(there.values()) and stats):
            return  # it may say that it does not know
        lost = {key for key in self.model.promised if not there[key]}
        counted = int(stats.get("evicted", 0)) + int(stats.get("lost", 0))
        text = f"{step}: {sorted(lost)} of {counted}"
        assert len(lost) <= max(0, counted - self.model.gone), text
        self.result_of["values gone and counted"] += len(lost)
        halves = {_page(key) for key in lost} - self.written
        halves &= {_page(key) for key in self.keys if there[key]}
        assert not halves, f"{step}: a part of the page went"
        self.model.gone = counted
        self.model.promised -= lost
        assert int(stats.get("disk_bytes", 0)) <= (self.subject.size_bytes or 1 << 60)
        self.judge_room(exact=step == "write" and not self.fault)
        if step == "last":
            listed = {entry.key for entry in self.store.entries(self.context)}
            assert {key for key in there if there[key]} == listed & there.keys()
            self.read_some(self.keys)
            self.judge("read")

    def judge_room(self, exact: bool = True) -> None:
        """exact: all room is a value's."""
        stats = self.store.stats()
        if "used_bytes" not in stats:
            return
        sizes = [entry.size_bytes for entry in self.store.entries(self.context)]
        assert (stats["values"], stats["bytes"]) == (len(sizes), sum(sizes))
        assert self.room_left() == 0 or not exact, "room that no value has"
        if self.subject.address.startswith("file:") and exact:
            blocks = Path(self.subject.address[5:], "data").stat().st_blocks
            assert int(stats["disk_bytes"]) <= blocks * 512, "room that is none"
            assert sizes or not blocks, "the disk has its room"

    def room_left(self) -> int:
        """Bytes that are used, and no value's."""
        used = self.store.stats().get("used_bytes")
        entries = () if used is None else self.store.entries(self.context)
        return int(used or 0) - sum(-(-entry.size_bytes // SLOT) * SLOT for entry in entries)

    def takes_writes(self) -> None:
        key = min(self.keys, key=self.model.sizes.__getitem__)
        if self.subject.capacity([self.model.sizes[key]]):
            statuses = self.write_to([key])
            assert statuses == [Status.DONE], f"after all faults: {statuses}"
            self.judge_room()

    def can_be_emptied(self) -> None:
        keys = [entry.key for entry in self.store.entries(self.context)]
        assert set(self.ask("delete", keys)) <= {Status.DONE}
        assert set(self.ask("lookup", self.keys)) == {False}
        assert not list(self.store.entries(self.context))
        self.judge_room()


def _page(key: str) -> str:
    return key.rpartition("/")[2]


def play(make: Callable[[Path, random.Random], Subject], folder: Path, seed: int) -> Counter[str]:
    """One history in a new folder. Raises AssertionError with the seed."""
    drawn = random.Random(seed)
    place = Path(tempfile.mkdtemp(dir=folder))
    try:
        subject = make(place, drawn)
        try:
            return History(subject, drawn).play()
        finally:
            subject.close()
    except Exception as error:
        raise AssertionError(f"history {seed}: {error!r}") from error
    finally:
        shutil.rmtree(place, ignore_errors=True)
