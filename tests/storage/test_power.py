"""A power failure after every step of the file backend's protocol, and all that may be left.

The medium stands in for the segments and the index file. Segments are bytes that are safe and
writes that are not synced yet; a crash keeps any of the unsynced sectors. The index is SQLite in
memory: SQLite promises that a crash keeps a leading run of its commits (all of them where each is
synced), so every commit leaves a snapshot that a crash may go back to.
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hicache.storage.backends._file_data import Data
from hicache.storage.backends._file_index import Index, create
from hicache.storage.backends.file import FileStore
from hicache.storage.base import Status, StorageOptions
from hicache.storage.verified import Verified

SLOTS = 3
SIZE = 1200  # with the header three sectors of 512 bytes
KEYS = "abcdef"
# What is written and deleted, one batch after the other: new pages, two at a time, a page again,
# and more than there is room for.
STORY = ("+a", "+bc", "+b", "-c", "+de", "+a", "+fa", "-a", "+c")
MOST = 8  # subsets of sectors that are all tried


@dataclass(frozen=True)
class Crash:
    """What a power failure finds: bytes that are safe, sectors that may be there, and the commits
    that the index may go back to."""

    step: str
    safe: dict[int, bytes]
    loose: tuple[tuple[int, int, bytes], ...]  # segment, start and bytes of a sector
    loose_files: frozenset[int]  # created, and their names not synced
    commits: tuple[bytes, ...]

    def outcomes(self, drawn: Random) -> Iterator[tuple[dict[int, bytearray], bytes]]:
        """Every medium that may be left. Where there are more than MOST subsets of the sectors,
        all, none and a drawn one."""
        for commit in self.commits:
            for kept in self._subsets(drawn):
                left = {segment: bytearray(found) for segment, found in self.safe.items()}
                for one, (segment, start, sector) in zip(kept, self.loose, strict=True):
                    if one:
                        left[segment][start : start + len(sector)] = sector
                for segment in self.loose_files:
                    if kept and not kept[0]:
                        del left[segment]
                yield left, commit

    def _subsets(self, drawn: Random) -> Iterator[tuple[bool, ...]]:
        count = len(self.loose)
        if 1 << count <= MOST:
            yield from product((False, True), repeat=count)
            return
        yield (True,) * count  # the process was killed and the machine lived
        yield (False,) * count
        yield tuple(drawn.random() < 0.5 for _ in range(count))


@dataclass
class Medium:
    """One run on the medium. crashes: gets what a failure would find, after every step."""

    sector_bytes: int
    durable: bool
    size_bytes: int
    crashes: Callable[[Crash], None]
    files: dict[int, bytearray] = field(default_factory=dict)
    loose: list[tuple[int, int, bytes]] = field(default_factory=list)
    loose_files: set[int] = field(default_factory=set)
    safe: dict[int, bytes] = field(default_factory=dict)
    commits: list[bytes] = field(default_factory=list)

    def step(self, name: str) -> None:
        self.crashes(
            Crash(
                name,
                dict(self.safe),
                tuple(self.loose),
                frozenset(self.loose_files),
                tuple(self.commits[-1:] if self.durable else self.commits[-4:]),
            )
        )


class _Data(Data):
    def __init__(self, medium: Medium) -> None:
        super().__init__(Path("nowhere"))
        self.medium = medium

    def create(self, segment: int, size_bytes: int) -> None:
        self.made.append(segment)
        self.medium.files[segment] = bytearray(size_bytes)
        self.medium.safe[segment] = bytes(size_bytes)
        self.medium.loose_files.add(segment)
        self.medium.step("create")

    def delete(self, segment: int) -> None:
        medium = self.medium
        medium.files.pop(segment, None)
        medium.safe.pop(segment, None)
        medium.loose_files.discard(segment)
        medium.loose = [one for one in medium.loose if one[0] != segment]
        medium.step("delete")

    def room(self) -> int:
        return 1 << 40

    def has(self, segment: int) -> bool:
        return segment in self.medium.files

    def segments(self) -> list[int]:
        return list(self.medium.files)

    def write(self, segment: int, start: int, buffers: Sequence[memoryview]) -> None:
        whole = b"".join(buffers)
        medium, size = self.medium, self.medium.sector_bytes
        if segment not in medium.files:
            raise FileNotFoundError(errno.ENOENT, "gone")
        medium.files[segment][start : start + len(whole)] = whole
        for at in range(0, len(whole), size):
            medium.loose.append((segment, start + at, whole[at : at + size]))
        medium.step("write")

    def read(self, segment: int, start: int, buffers: Sequence[memoryview]) -> bool:
        if segment not in self.medium.files:
            raise FileNotFoundError(errno.ENOENT, "gone")
        for buffer in buffers:
            buffer[:] = self.medium.files[segment][start : start + buffer.nbytes]
            start += buffer.nbytes
        return True

    def sync(self, segment: int) -> None:
        medium = self.medium
        found = bytearray(medium.safe[segment])
        for _, start, sector in [one for one in medium.loose if one[0] == segment]:
            found[start : start + len(sector)] = sector
        medium.safe[segment] = bytes(found)
        medium.loose = [one for one in medium.loose if one[0] != segment]
        medium.step("sync")

    def sync_folder(self) -> None:
        self.medium.loose_files.clear()
        self.medium.step("sync of the folder")


class _Connection(sqlite3.Connection):
    medium: Medium

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        cursor = super().execute(sql, *arguments)
        if sql == "COMMIT":
            self.medium.commits.append(self.serialize())
            self.medium.step("commit")
        return cursor


class _Opened:
    """Stands for the open folder (`_file_folder`)."""

    unwritable = ""

    def __init__(self, medium: Medium, left: bytes | None) -> None:
        self.data = _Data(medium)
        base = sqlite3.connect(
            ":memory:", isolation_level=None, check_same_thread=False, factory=_Connection
        )
        base.medium = medium
        if left is not None:
            base.deserialize(left)
        create(base)
        medium.commits.append(base.serialize())
        (owner,) = base.execute("UPDATE meta SET tick = tick + 1 RETURNING tick").fetchone()
        self.index = Index(
            base, self.data, medium.size_bytes, owner, lambda number: number == owner
        )
        self.index.clean()

    def is_there(self) -> bool:
        return True

    def may_be_written(self) -> bool:
        return False

    def close(self) -> None:
        self.index.close()


class _Store(FileStore):
    def __init__(self, medium: Medium, left: bytes | None = None) -> None:
        self._make = lambda: _Opened(medium, left)
        super().__init__(Path("nowhere"), StorageOptions(medium.size_bytes, durable=medium.durable))

    def _open(self) -> Any:
        return self._make()


def page_of(name: str, version: int) -> bytes:
    return (f"{name}{version:03}".encode() * SIZE)[:SIZE]


def key_of(name: str) -> str:
    return f"c/kv/0of1/{name}"


def versions(store: Verified) -> dict[str, bytes]:
    """Every page that the store serves."""
    into = {name: memoryview(bytearray(SIZE)) for name in KEYS}
    found = store.read([key_of(name) for name in KEYS], [(page,) for page in into.values()])
    return {
        name: bytes(into[name])
        for name, status in zip(KEYS, found, strict=True)
        if status is Status.DONE
    }


def do(store: Verified, step: str, number: int) -> None:
    keys = [key_of(name) for name in step[1:]]
    if step[0] == "+":
        values = [(memoryview(page_of(name, number)),) for name in step[1:]]
        assert store.write(keys, values) == [Status.DONE] * len(keys)
    else:
        store.delete(keys)


def judge(crash: Crash, medium: Medium, sure: list[str], known: set[bytes], at: str) -> int:
    """Open everything that the crash may leave: what is served was written, and what is sure to be
    there is served. Then the store must work."""
    count = 0
    for left, commit in crash.outcomes(Random(at)):
        after = Medium(medium.sector_bytes, medium.durable, medium.size_bytes, lambda _: None)
        after.files = left
        after.safe = {segment: bytes(found) for segment, found in left.items()}
        store = Verified(_Store(after, commit))
        served = versions(store)
        assert set(served.values()) <= known, f"{at}, {crash.step}: wrong bytes"
        lost = [name for name in sure if name not in served]
        assert not lost, f"{at}, {crash.step}: {lost} was promised"
        do(store, "+ab", 900)
        assert versions(store).items() >= {name: page_of(name, 900) for name in "ab"}.items()
        count += 1
    return count


def play(sector_bytes: int, durable: bool, bounded: bool) -> int:
    """The story, with a failure after every step; how many states were judged."""
    crashes: list[Crash] = []
    medium = Medium(sector_bytes, durable, SLOTS * 4096 * bounded, crashes.append)
    store = Verified(_Store(medium))
    known: set[bytes] = set()
    count = 0
    before: dict[str, bytes] = {}
    for number, step in enumerate(STORY):
        crashes.clear()
        known |= {page_of(name, number) for name in step[1:] if step[0] == "+"}
        do(store, step, number)
        during = list(crashes)
        after = versions(store)
        # What this step does not touch is sure to be there. So is a page that it writes again, old
        # or new; but where room is short, the old one may be evicted for the new one.
        sure = [name for name, page in before.items() if after.get(name) == page]
        if not bounded:
            assert sorted(before) == sorted(set(before) & {*after, *step[1:]})
            sure = [name for name in before if name in after]
        for crash in during:
            count += judge(crash, medium, sure if durable else [], known, f"{number} {step}")
        if durable:
            medium.step("done")
            count += judge(crashes[-1], medium, list(after), known, f"after {number} {step}")
        before = after
    store.close()
    return count


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(("durable", "sector_bytes"), [(True, 512), (False, 4096)])
def test_a_power_failure_after_any_step(durable: bool, sector_bytes: int, bounded: bool) -> None:
    assert play(sector_bytes, durable, bounded) > 40
