"""Which slots of one large file hold which value, and a journal that a crash cannot tear.

The journal is a text file of one record a line, each with its checksum. A value is written into
free slots first and recorded then; a slot is free for another value only after the record that it
is no longer used. So a process that is killed at any point leaves whole values or none. Reading
stops at the first record that is not whole, and what follows is cut off.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hicache.core.errors import CallerError

FORMAT = 1
_SPARE = 10_000  # records more than values, before the journal is written anew


@dataclass(slots=True)
class Extents:
    """Where a value lies: runs of slots (first, count), and its bytes. readers: that are under way;
    gone: its slots are free when the last of them ends."""

    size: int
    runs: list[tuple[int, int]]
    readers: int = 0
    gone: bool = False

    def pieces(self, slot_bytes: int) -> Iterator[tuple[int, int, int]]:
        """(offset in the file, offset in the value, size), neighbours in one."""
        start = 0
        for first, count in self.runs:
            size = min(count * slot_bytes, self.size - start)
            yield first * slot_bytes, start, size
            start += size

    def slots(self) -> list[int]:
        return [slot for first, count in self.runs for slot in range(first, first + count)]


class Reserved(NamedTuple):
    """value: the slots of a new value. gone: the keys that lost theirs to it: record that before
    writing, and then give `rest` back."""

    value: Extents
    gone: list[str]
    rest: Extents


class Slots:
    """The values by their keys, the least recently used first. Thread-safe; never waits for I/O."""

    def __init__(self, slot_bytes: int, slots: int) -> None:
        self.slot_bytes, self.slots = slot_bytes, slots
        self._lock = threading.Lock()
        self._values: dict[str, Extents] = {}
        self._free = list(range(slots - 1, -1, -1))

    def known(self, keys: Sequence[str]) -> list[bool]:
        with self._lock:
            return [key in self._values for key in keys]

    def sizes(self) -> list[tuple[str, int]]:
        with self._lock:
            return [(key, value.size) for key, value in self._values.items()]

    @property
    def free(self) -> int:
        return len(self._free)

    def reserve(self, size: int) -> Reserved | None:
        """Slots for a value, from the values that were not used for longest if it must be. None if
        it does not fit."""
        needed = -(-size // self.slot_bytes)
        with self._lock:
            victims: list[tuple[str, Extents]] = []
            room = len(self._free)
            for key, value in self._values.items():
                if room >= needed:
                    break
                if not value.readers:
                    victims.append((key, value))
                    room += sum(count for _, count in value.runs)
            if room < needed:
                return None
            for key, _ in victims:
                del self._values[key]
            slots = [self._free.pop() for _ in range(min(needed, len(self._free)))]
            slots += [slot for _, value in victims for slot in value.slots()]
        taken, rest = sorted(slots[:needed]), slots[needed:]
        gone = [key for key, _ in victims]
        return Reserved(Extents(size, _runs(taken)), gone, Extents(0, _runs(rest)))

    def give_back(self, value: Extents) -> None:
        """Slots that hold nothing, or the value that `remove` or `publish` took out."""
        with self._lock:
            value.gone = True
            if not value.readers:
                self._give(value)

    def publish(self, key: str, value: Extents) -> Extents | None:
        """From now on the key has this value. Returns the old one: give it back."""
        with self._lock:
            old = self._values.pop(key, None)
            self._values[key] = value
            return old

    def remove(self, key: str) -> Extents | None:
        """Returns the value: record that it is gone, then give it back."""
        with self._lock:
            return self._values.pop(key, None)

    @contextmanager
    def reading(self, keys: Sequence[str]) -> Iterator[list[Extents | None]]:
        """The values, whose slots stay theirs in the block. They count as used."""
        found: list[Extents | None] = []
        with self._lock:
            for key in keys:
                value = self._values.pop(key, None)
                found.append(value)
                if value is not None:
                    self._values[key] = value
                    value.readers += 1
        try:
            yield found
        finally:
            with self._lock:
                for value in found:
                    if value is not None:
                        value.readers -= 1
                        if value.gone and not value.readers:
                            self._give(value)

    def adopt(self, records: Iterable[tuple[str, Extents | None]]) -> None:
        """Begin with what a journal says, in its order. A record of slots that do not exist or
        that another value has does not count."""
        for key, value in records:
            self._values.pop(key, None)
            if value is not None:
                self._values[key] = value
        taken: set[int] = set()
        for key in reversed(list(self._values)):  # the newest has the slot
            own = self._values[key].slots()
            if taken.intersection(own) or any(not 0 <= slot < self.slots for slot in own):
                del self._values[key]
            else:
                taken.update(own)
        self._free = [slot for slot in range(self.slots - 1, -1, -1) if slot not in taken]

    def records(self) -> list[tuple[str, Extents]]:
        with self._lock:
            return list(self._values.items())

    def _give(self, value: Extents) -> None:
        self._free.extend(reversed(value.slots()))


class Journal:
    """The file of records. Used by one thread at a time (`lock`)."""

    def __init__(self, path: Path, slots: Slots) -> None:
        self.lock = threading.Lock()
        self._path, self._slots = path, slots
        self._head = {"format": FORMAT, "slot_bytes": slots.slot_bytes, "slots": slots.slots}
        self._records = 0
        self._file = -1

    def open(self) -> None:
        """Read what is there, cut off what is not whole, and go on behind it. Raises OSError."""
        records, end = _read(self._path)
        self._slots.adopt(records)
        self._records = len(records)
        if end == 0 or self._is_long():
            self._write_anew()
            return
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(self._file, end)

    def append(self, records: Iterable[tuple[str, Extents | None]], durable: bool) -> None:
        """Add records; None: the key is gone. Raises OSError; then nothing counts as recorded."""
        lines = [_line(_record(key, value)) for key, value in records]
        if not lines:
            return
        at = os.fstat(self._file).st_size
        text = b"".join(lines)
        try:
            written = os.write(self._file, text)
            if written != len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if durable:
                os.fdatasync(self._file)
        except OSError:
            os.ftruncate(self._file, at)
            raise
        self._records += len(lines)
        if self._is_long():
            self._write_anew()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _is_long(self) -> bool:
        return self._records > 2 * len(self._slots.sizes()) + _SPARE

    def _write_anew(self) -> None:
        """Only what counts, in a new file that replaces the old one whole."""
        records = self._slots.records()
        draft = self._path.with_suffix(".new")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        file = os.open(draft, flags, 0o600)
        with os.fdopen(os.dup(file), "wb") as output:
            output.write(_line(self._head))
            output.writelines(_line(_record(key, value)) for key, value in records)
            output.flush()
            os.fsync(output.fileno())
        os.replace(draft, self._path)
        self.close()
        self._file, self._records = file, len(records)


def head_of(path: Path) -> tuple[int, int] | None:
    """(slot_bytes, slots) of a journal; None if there is none yet. Raises CallerError for a file of
    another format."""
    try:
        with path.open("rb") as file:
            first = file.readline(4096)
    except FileNotFoundError:
        return None
    head = _checked(first)
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        found = head.get("format") if isinstance(head, dict) else "another file"
        raise CallerError(
            f"storage: expected {path} to be a journal of format {FORMAT}, found {found}; use "
            "another directory"
        )
    return head["slot_bytes"], head["slots"]


def _read(path: Path) -> tuple[list[tuple[str, Extents | None]], int]:
    """The records up to the first that is not whole, and where that begins."""
    records: list[tuple[str, Extents | None]] = []
    end = 0
    if not path.exists():
        return records, end
    with path.open("rb") as file:
        for line in file:
            found = _checked(line)
            if found is None:
                break
            if isinstance(found, list):
                key, size, runs = found
                value = Extents(size, [(first, count) for first, count in runs]) if runs else None
                records.append((key, value))
            end += len(line)
    return records, end


def _record(key: str, value: Extents | None) -> list[object]:
    return [key, value.size if value else 0, value.runs if value else []]


def _line(record: object) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _checked(line: bytes) -> Any:
    """The record of a line; None if it is not whole."""
    text = line[9:-1]
    if line != b"%08x %s\n" % (zlib.crc32(text), text):
        return None
    return json.loads(text)


def _runs(slots: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbours as (first, count)."""
    runs: list[tuple[int, int]] = []
    for slot in slots:
        if runs and slot == sum(runs[-1]):
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((slot, 1))
    return runs
