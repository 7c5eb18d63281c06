"""Drawn histories of a store on a full, failing or bounded medium, compared with a plain model.

A history writes, reads, deletes, opens again and kills, while faults come and go. The laws:

- what is served is what was written under that key, the last acknowledged value or a later one
- nothing is served, or found corrupt, that nobody wrote
- what was acknowledged is there, or counted: evicted or lost
- what counts as room of the file is reserved on the disk
- nothing is evicted that was used later than everything that stays
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

from hicache.core.errors import CallerError
from hicache.storage.base import Status, Storage
from hicache.storage.checksummed import HEADER_BYTES, Checksummed

from .mediums import SLOT, Fault, Subject

STEPS = 24
SIZES = (1, 700, 4096 - HEADER_BYTES, 4097, 9000, 20_000, 70_000)
CONTEXT = "c" * 64


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
        sizes = drawn.sample(SIZES, drawn.choice((1, 1, 2, 3)))
        shards = drawn.choice((1, 1, 2))
        self.pages = [f"{number:064x}" for number in range(drawn.choice((6, 20, 60)))]
        self.keys = [
            f"{CONTEXT}/kv/{shard}of{shards}/{page}"
            for page in self.pages
            for shard in range(shards)
        ]
        self.model.sizes = {key: drawn.choice(sizes) for key in self.keys}
        self.alike = len(sizes) == 1
        self.store = self.opened()

    def opened(self) -> Checksummed:
        try:
            return Checksummed(self.subject.open())
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
        }
        weights = [12, 5, 2, 1, 2, 1, 1, 1]
        try:
            for _ in range(STEPS):
                [name] = self.drawn.choices([*steps], weights)
                steps[name]()
                self.judge(name)
            self.end()
            self.judge("last")
            self.takes_writes()
        finally:
            self.ending.close()
            self.store.close()
        self.result_of["histories"] += 1
        return self.result_of

    def some(self, most: int) -> list[str]:
        return self.drawn.sample(self.keys, min(len(self.keys), self.drawn.randint(1, most)))

    def write(self) -> None:
        keys = self.some(8)
        if self.drawn.random() < 0.7:  # of one size
            keys = [key for key in keys if self.model.sizes[key] == self.model.sizes[keys[0]]]
        before, version = self.uses(), self.version + 1
        statuses = self.write_to(self.store, keys)
        self.acknowledge(keys, statuses, version)
        if not self.fault or set(statuses) == {Status.DONE}:
            self.judge_order(before, keys)  # else a segment was held by a part of the batch

    def write_to(self, store: Storage, keys: Sequence[str]) -> list[Status]:
        self.version += 1
        texts = [value_of(key, self.version, self.model.sizes[key]) for key in keys]
        return store.write(keys, [(memoryview(text),) for text in texts])

    def acknowledge(self, keys: Sequence[str], statuses: Sequence[Status], version: int) -> None:
        for key, status in zip(keys, statuses, strict=True):
            self.result_of[f"{self.fault.name if self.fault else 'no fault'}: write {status}"] += 1
            assert status in (Status.DONE, Status.FULL, Status.FAILED), status
            if status is Status.DONE:
                self.model.may[key] = {version}
                self.model.promised.add(key)
                self.model.use(_page(key))
            else:
                self.model.may.setdefault(key, set()).add(version)
                self.model.unsure.add(_page(key))
        if not self.fault:
            room = self.subject.capacity([self.model.sizes[key] for key in keys])
            refused = [status for status in statuses if status is not Status.DONE]
            assert len(refused) <= max(0, len(keys) - room), f"refused: {statuses}, room for {room}"

    def read(self) -> None:
        keys = self.some(12)
        for key, status, text in self.served(keys):
            assert status is not Status.CORRUPT, f"{key} was found corrupt"
            if status is Status.DONE:
                assert self.knows(key, text), f"{key} has other bytes"
                self.model.use(_page(key))
            elif status is Status.FAILED:
                assert self.fault, "a read failed without a fault"

    def delete(self) -> None:
        keys = self.some(4)
        for key, status in zip(keys, self.store.delete(keys), strict=True):
            if status in (Status.DONE, Status.MISSING):
                if status is Status.MISSING and key in self.model.promised:
                    continue  # it was evicted, which is counted at the end of the step
                self.model.may.pop(key, None)
            else:
                assert self.fault, "a delete failed without a fault"
            self.model.promised.discard(key)

    def again(self) -> None:
        self.store.close()
        self.ordered = self.ordered and not self.fault
        self.store = self.opened()

    def begin(self) -> None:
        if self.fault is None:
            self.fault = self.drawn.choice(self.subject.faults)
            self.ending.enter_context(self.fault.lasts(self.drawn))
            self.result_of[f"fault {self.fault.name}"] += 1

    def end(self) -> None:
        self.ending.close()
        self.fault = None

    def other(self) -> None:
        """Another store on the same place writes."""
        if self.fault is None:
            keys, self.ordered = self.some(8), False
            self.store.close()  # else what it could not give back during a fault is its own
            with closing(self.opened()) as store:
                self.store = self.opened()
                statuses = self.write_to(store, keys)
                self.acknowledge(keys, statuses, self.version)

    def kill(self) -> None:
        """Another process writes, and dies at a drawn call."""
        self.store.close()
        keys, calls = self.some(8), self.drawn.randint(1, 25)
        reader, pipe = os.pipe()
        child = os.fork()
        if not child:
            try:
                self.subject.die_after(calls)
                with closing(self.opened()) as store:
                    done = self.write_to(store, keys)
                    os.write(pipe, bytes([status is Status.DONE for status in done]))
            finally:
                os._exit(0)
        os.close(pipe)
        with open(reader, "rb") as stream:
            done = list(stream.read())
        os.waitpid(child, 0)
        self.version += 1
        self.ordered = False
        for key, number in zip(keys, done or [False] * len(keys), strict=True):
            if number:
                self.model.may[key] = {self.version}
                self.model.promised.add(key)
            else:
                self.model.may.setdefault(key, set()).add(self.version)
        self.result_of["kills"] += 1
        self.store = self.opened()

    def served(self, keys: Sequence[str]) -> list[tuple[str, Status, bytes]]:
        into = [memoryview(bytearray(self.model.sizes[key])) for key in keys]
        statuses = self.store.read(keys, [(view,) for view in into])
        return [
            (key, how, bytes(text)) for key, how, text in zip(keys, statuses, into, strict=True)
        ]

    def knows(self, key: str, text: bytes) -> bool:
        size = self.model.sizes[key]
        return any(text == value_of(key, number, size) for number in self.model.may.get(key, ()))

    def uses(self) -> dict[str, int]:
        """When what is stored was used."""
        there = zip(self.keys, self.store.lookup(self.keys), strict=True)
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
        there = dict(zip(self.keys, self.store.lookup(self.keys), strict=True))
        stats = self.store.stats()
        if self.fault and not (any(there.values()) and stats):
            return  # it may say that it does not know
        lost = {key for key in self.model.promised if not there[key]}
        counted = int(stats.get("evicted", 0)) + int(stats.get("lost", 0))
        assert len(lost) <= max(0, counted - self.model.gone), (
            f"{step}: {sorted(lost)} of {counted}"
        )
        self.result_of["values gone and counted"] += len(lost)
        self.model.gone = counted
        self.model.promised -= lost
        assert int(stats.get("disk_bytes", 0)) <= (self.subject.size_bytes or 1 << 60)
        if step == "last":
            assert len(list(self.store.entries(""))) == stats["values"] == sum(there.values())
            for key, status, text in self.served(self.keys):
                hidden = there[key] and status is Status.MISSING  # found and counted by this read
                assert hidden or status is (Status.DONE if there[key] else Status.MISSING), status
                assert status is Status.MISSING or self.knows(key, text), f"{key}: other bytes"
            assert self.store.corrupt == 0, "found by its checksum alone"
            if self.subject.address.startswith("file:"):
                data = Path(self.subject.address[5:], "data")
                assert stats["disk_bytes"] <= data.stat().st_blocks * 512, "room that is none"
            self.judge("read")

    def takes_writes(self) -> None:
        key = min(self.keys, key=self.model.sizes.__getitem__)
        if self.subject.capacity([self.model.sizes[key]]):
            statuses = self.write_to(self.store, [key])
            assert statuses == [Status.DONE], f"after all faults: {statuses}"
            taken = sum(-(-entry.size_bytes // SLOT) * SLOT for entry in self.store.entries(""))
            assert self.store.stats()["used_bytes"] == taken, "room that no value has"


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
