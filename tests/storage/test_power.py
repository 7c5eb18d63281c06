"""A power failure after every step of the file backend's protocol, and all that may be left.

What was written and is not synced may be there after the failure or not, sector by sector; so may
what the file has grown by. SQLite promises that a failure keeps a leading run of its commits (all
of them where each is synced), so every commit leaves a copy of the index that a failure may go back
to.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from hicache.storage import file_index
from hicache.storage.address import open_storage, parse
from hicache.storage.backends import file
from hicache.storage.base import Status, StorageOptions
from hicache.storage.checksummed import Checksummed
from hicache.storage.file_index import Data, Run

SLOTS = 3
SIZE = 1200  # with the header three sectors of 512 bytes
KEYS = "abcdef"
MOST = 8  # subsets of sectors that are all tried
# What is written and deleted, one batch after the other: new pages, two at a time, a page again,
# and more than there is room for.
STORY = ("+a", "+bc", "+b", "-c", "+de", "+fa")


@dataclass(frozen=True)
class Crash:
    """What a failure finds: bytes that are safe, but for those that the file has grown by, sectors
    (start, bytes) that may be there, and the commits that the index may go back to."""

    step: str
    safe: bytes
    least: int
    loose: tuple[tuple[int, bytes], ...]
    commits: tuple[bytes, ...]

    def outcomes(self, drawn: Random) -> Iterator[tuple[bytes, bytes]]:
        """All that may be left. Where there are more than MOST subsets of the sectors, all, none
        and a drawn one."""
        count = len(self.loose)
        subsets = [(True,) * count, (False,) * count, tuple(drawn.choices((True, False), k=count))]
        if 1 << count <= MOST:
            subsets = [*product((False, True), repeat=count)]
        for commit, kept in product(self.commits, subsets):
            left = self.safe if any(kept) else self.safe[: self.least]
            for item, (start, text) in zip(kept, self.loose, strict=True):
                if item:
                    left = left[:start] + text + left[start + len(text) :]
            yield left, commit


class Medium:
    """Follows what a store does in a folder. crashes: what a failure would find after each step."""

    def __init__(self, folder: Path, sector_bytes: int, durable: bool) -> None:
        self.folder, self.sector_bytes, self.durable = folder, sector_bytes, durable
        self.safe, self.least = b"", 0
        self.loose: list[tuple[int, bytes]] = []
        self.commits: list[bytes] = []
        self.crashes: list[Crash] = []

    def step(self, name: str) -> None:
        commits = self.commits[-1:] if self.durable else self.commits[-3:]
        crash = Crash(name, self.safe, self.least, tuple(self.loose), tuple(commits))
        self.crashes.append(crash)

    def allocate(self, data: Data, run: Run) -> None:
        self.safe = self.safe.ljust((run.start + run.blocks) * 4096, b"\0")

    def write(self, file: int, buffers: Any, start: int) -> None:
        text, size = b"".join(buffers), self.sector_bytes
        self.loose += [(start + at, text[at : at + size]) for at in range(0, len(text), size)]

    def sync(self, file: int) -> None:
        self.safe, self.loose = (self.folder / "data").read_bytes(), []
        self.least = len(self.safe)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for where, call, name in (
            (Data, "allocate", "allocate"),
            (os, "pwritev", "write"),
            (os, "fdatasync", "sync"),
        ):
            patch.setattr(where, call, self._followed(name, getattr(where, call)))
        medium, real = self, file._connection

        class Connection(sqlite3.Connection):
            def execute(self, sql: str, *items: Any) -> sqlite3.Cursor:
                cursor = super().execute(sql, *items)
                if sql == "COMMIT" or not medium.commits:
                    medium.commits.append(self.serialize())
                    medium.step("commit")
                return cursor

        def connection(name: str, timeout_s: float, uri: bool = False) -> sqlite3.Connection:
            if not name.startswith(str(medium.folder)):
                return real(name, timeout_s, uri)
            isolation: Any = {"isolation_level": None, "check_same_thread": False}
            return sqlite3.connect(name, timeout_s, factory=Connection, uri=uri, **isolation)

        patch.setattr(file, "_connection", connection)

    def _followed(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(what: Any, *items: Any) -> Any:
            result = real(what, *items)
            place = Path(os.readlink(f"/proc/self/fd/{what}")) if type(what) is int else what.path
            if place.is_relative_to(self.folder):
                getattr(self, name)(what, *items)
                self.step(name)
            return result

        return call


def opened(folder: Path, durable: bool, bounded: bool) -> Checksummed:
    text = f"file:{folder}?durable={'yes' if durable else 'no'}"
    text += f"&size={SLOTS * 4096}" if bounded else ""
    return Checksummed(open_storage(parse(text), StorageOptions()))


def page_of(name: str, version: int) -> bytes:
    return (f"{name}{version:03}".encode() * SIZE)[:SIZE]


def key_of(name: str) -> str:
    return f"c/kv/0of1/{name}"


def versions(store: Checksummed) -> dict[str, bytes]:
    """Every page that the store serves."""
    into = {name: memoryview(bytearray(SIZE)) for name in KEYS}
    statuses = store.read([key_of(name) for name in KEYS], [(page,) for page in into.values()])
    there = zip(KEYS, statuses, strict=True)
    return {name: bytes(into[name]) for name, status in there if status is Status.DONE}


def do(store: Checksummed, step: str, number: int) -> None:
    keys = [key_of(name) for name in step[1:]]
    if step[0] == "+":
        values = [(memoryview(page_of(name, number)),) for name in step[1:]]
        assert store.write(keys, values) == [Status.DONE] * len(keys)
    else:
        store.delete(keys)


@pytest.mark.parametrize("bounded", [True, False])
@pytest.mark.parametrize(("durable", "sector_bytes"), [(True, 512), (False, 4096)])
def test_a_power_failure_after_any_step(
    durable: bool, sector_bytes: int, bounded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is served was written, and what is sure to be there is served. Then the store works."""
    monkeypatch.setattr(file_index, "_FIRST_BLOCKS", 1)
    monkeypatch.setattr(file_index, "_MORE_BLOCKS", 4)
    medium = Medium(tmp_path / "store", sector_bytes, durable)
    medium.install(monkeypatch)
    store, known, count = opened(medium.folder, durable, bounded), set[bytes](), 0

    def judge(crash: Crash, sure: list[str], at: str) -> None:
        nonlocal count
        for left, commit in crash.outcomes(Random(at)):
            count += 1
            after = tmp_path / "after"
            after.mkdir()
            (after / "index.sqlite").write_bytes(commit)
            (after / "data").write_bytes(left)
            with closing(opened(after, durable, bounded)) as again:
                served = versions(again)
                assert set(served.values()) <= known, f"{at}, {crash.step}: wrong bytes"
                lost = [name for name in sure if name not in served]
                assert not lost, f"{at}, {crash.step}: {lost} was promised"
                do(again, "+ab", 900)
                assert (
                    versions(again).items() >= {text: page_of(text, 900) for text in "ab"}.items()
                )
            shutil.rmtree(after)

    before: dict[str, bytes] = {}
    for number, step in enumerate(STORY):
        medium.crashes.clear()
        known |= {page_of(name, number) for name in step[1:] if step[0] == "+"}
        do(store, step, number)
        during, after = list(medium.crashes), versions(store)
        # What this step does not touch is sure to be there. So is a page that it writes again, old
        # or new; but where room is short, the old one may be evicted for the new one.
        sure = [name for name, page in before.items() if after.get(name) == page]
        if not bounded:
            assert sorted(before) == sorted(set(before) & {*after, *step[1:]})
            sure = [name for name in before if name in after]
        for crash in during:
            judge(crash, sure if durable else [], f"{number} {step}")
        if durable:
            medium.step("done")
            judge(medium.crashes[-1], list(after), f"after {number} {step}")
        before = after
    store.close()
    assert count > 40
