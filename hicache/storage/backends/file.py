"""The embedded store: a folder on a local disk, which several processes may use at a time.

Values lie in slots of large files whose blocks are reserved (`_file_data`), and an index in SQLite
says which slot holds which key (`_file_index`). A value is written into a slot that has no key, and
gets its key afterwards, so a process that is killed at any instruction leaves whole values or none.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from hicache.core.errors import CallerError

from ..address import in_folder, with_query
from ..base import Address, Entry, Status, Storage, StorageOptions, Value, tell
from ..buffers import size_of
from ._file_changes import REFUSED, failed, status_of
from ._file_folder import MANIFEST, Opened
from ._file_index import Row, Slot

SUMMARY = "file:DIR?size=5GB, a folder on a local disk"


def open_storage(address: Address, options: StorageOptions) -> FileStore:
    where = in_folder(Address(address.scheme, address.rest.removeprefix("//")))
    return FileStore(Path(os.path.expanduser(where.path)), with_query(options, where))


class FileStore(Storage):
    """One open folder. If the folder is deleted under it, it begins a new one."""

    def __init__(self, path: Path, options: StorageOptions) -> None:
        """Raises CallerError for a folder that cannot be used."""
        self._path = path
        self._options = options
        self._lock = threading.Lock()
        self._writing = _Turns()
        self._closed = False
        if not options.create and not (path / MANIFEST).exists():
            raise CallerError(f"storage: expected a store, found none in {path}; check the path")
        self._opened: Opened | None = self._open()

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        try:
            rows, _ = self._use().index.find(keys)
        except REFUSED as error:
            tell(error)
            return [None] * len(keys)
        return [key in rows for key in keys]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self.read_checked(keys, values, lambda _: True)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        return self.write_sealed(keys, values, lambda _: None)

    def read_checked(
        self, keys: Sequence[str], values: Sequence[Value], check: Callable[[int], bool]
    ) -> list[Status]:
        try:
            return _read_values(self._use(), keys, values, check)
        except REFUSED as error:
            return [failed(error)] * len(keys)

    def write_sealed(
        self, keys: Sequence[str], values: Sequence[Value], seal: Callable[[int], None]
    ) -> list[Status]:
        """Values that find no room beside writes that go on are written once more, alone."""
        with self._writing.beside_others() as crowded:
            found = self._write(keys, values, seal)
            full = [at for at, status in enumerate(found) if status is Status.FULL]
            again = full and crowded()
        if again:
            with self._writing.alone():
                then = self._write(
                    [keys[at] for at in full],
                    [values[at] for at in full],
                    lambda number: seal(full[number]),
                )
            for at, status in zip(full, then, strict=True):
                found[at] = status
        return found

    def _write(
        self, keys: Sequence[str], values: Sequence[Value], seal: Callable[[int], None]
    ) -> list[Status]:
        try:
            opened = self._use(writing=True)
            return _write_values(opened, keys, values, seal, self._options.durable)
        except REFUSED as error:
            return [status_of(error)] * len(keys)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        try:
            return self._use(writing=True).index.delete(keys)
        except REFUSED as error:
            return [failed(error)] * len(keys)

    def entries(self, prefix: str) -> Iterator[Entry]:
        try:
            yield from self._use().index.entries(prefix)
        except sqlite3.Error as error:
            raise OSError(errno.EIO, str(error)) from error

    def stats(self) -> dict[str, int | float | str]:
        try:
            return {**self._use().index.stats()}
        except REFUSED:
            return {}

    def troubles(self) -> str:
        why = self._opened.unwritable if self._opened else ""
        return f"{why}, so it is read, and nothing is stored" if why else ""

    def close(self) -> None:
        with self._lock:
            self._closed = True
            opened, self._opened = self._opened, None
        if opened is not None:
            _close(opened)

    def _use(self, writing: bool = False) -> Opened:
        """The open folder. What was opened for reading alone is opened again for the first write
        that may work. Raises OSError if there is none, or if it cannot be written."""
        opened = self._opened
        if opened is None or not opened.is_there() or (writing and opened.may_be_written()):
            opened = self._again(opened)
        if writing and opened.unwritable:
            raise OSError(errno.ENOSPC if opened.full else errno.EROFS, opened.unwritable)
        return opened

    def _again(self, before: Opened | None) -> Opened:
        with self._lock:
            if self._closed:
                raise OSError(errno.EBADF, "the store is closed")
            if self._opened is None or self._opened is before:
                gone, self._opened = self._opened, None
                if gone is not None:
                    _close(gone)
                try:
                    self._opened = self._open()
                except CallerError as error:
                    raise OSError(errno.EIO, str(error)) from error
            return self._opened

    def _open(self) -> Opened:
        options = self._options
        return Opened(self._path, options.size_bytes, options.timeout_s, options.durable)


class _Turns:
    """Writes of one store: many at a time, or one alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open = self._begun = 0
        self._alone = False

    @contextmanager
    def beside_others(self) -> Iterator[Callable[[], bool]]:
        """Yields whether another write was under way since this one began."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._begun += 1
            others, number = self._open, self._begun
            self._open += 1
        try:
            yield lambda: others > 0 or self._begun > number
        finally:
            with self._changed:
                self._open -= 1
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._alone = True
            self._changed.wait_for(lambda: not self._open)
        try:
            yield
        finally:
            with self._changed:
                self._alone = False
                self._changed.notify_all()


def _read_values(
    opened: Opened, keys: Sequence[str], values: Sequence[Value], check: Callable[[int], bool]
) -> list[Status]:
    """Read each value, and see afterwards that its slot was not given to another one meanwhile."""
    index = opened.index
    rows, stamp = index.find(keys)
    found = []
    for at, key in enumerate(keys):
        status = _read(opened, rows.get(key), values[at])
        wrong = status is Status.DONE and not check(at)
        found.append(Status.CORRUPT if wrong else status)
    moved = index.moved(rows, stamp)
    if moved:
        found = [
            Status.MISSING if key in moved and status is not Status.FAILED else status
            for key, status in zip(keys, found, strict=True)
        ]
    index.touch([rows[key] for key, one in zip(keys, found, strict=True) if one is Status.DONE])
    return found


def _write_values(
    opened: Opened,
    keys: Sequence[str],
    values: Sequence[Value],
    seal: Callable[[int], None],
    durable: bool,
) -> list[Status]:
    """Write each value into a reserved slot; what is written gets its key, all in one step."""
    index, data = opened.index, opened.data
    lengths = [size_of(value) for value in values]
    slots = index.reserve(lengths, keys)
    found = [Status.FULL if isinstance(slot, Slot) else slot for slot in slots]
    unused = {slot: at for at, slot in enumerate(slots) if isinstance(slot, Slot)}
    try:
        for slot, at in unused.items():
            seal(at)
            found[at] = _write(opened, slot, values[at])
        if durable:
            for segment in {slot.segment for slot in unused}:
                data.sync(segment)
            data.sync_folder()
        ready = [slot for slot, at in unused.items() if found[at] is Status.DONE]
        done = index.publish([(slot, keys[unused[slot]], lengths[unused[slot]]) for slot in ready])
        for slot, status in zip(ready, done, strict=True):
            found[unused[slot]] = status
            if status is Status.DONE:
                del unused[slot]
    finally:
        if unused:
            index.release(list(unused))
    return found


def _read(opened: Opened, row: Row | None, value: Value) -> Status:
    if row is None:
        return Status.MISSING
    if size_of(value) != row.length:
        return Status.CORRUPT
    try:
        whole = opened.data.read(row.slot.segment, row.slot.start, value)
    except FileNotFoundError:
        opened.index.lost(row.slot.segment)
        return Status.MISSING
    except OSError as error:
        return failed(error)
    return Status.DONE if whole else Status.CORRUPT


def _write(opened: Opened, slot: Slot, value: Value) -> Status:
    try:
        opened.data.write(slot.segment, slot.start, value)
    except FileNotFoundError:
        opened.index.lost(slot.segment)
        return Status.FAILED
    except OSError as error:
        return status_of(error)
    return Status.DONE


def _close(opened: Opened) -> None:
    with suppress(*REFUSED):  # what was read last is not remembered
        opened.close()
