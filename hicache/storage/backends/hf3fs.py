"""3FS: values in the slots of one large file, with a journal beside it, as 3FS is best used.

    hf3fs:DIR?size=BYTES&durable=yes&slot=BYTES&engine=pread

DIR may lie on any file system; on a 3FS mount `engine=usrbio` goes past the kernel. One process
uses a directory at a time. When the file is full, the values that were not used for longest go.
I/O runs on threads that are given up on (`calls`), through memory of their own, so a mount that
hangs costs a call its time-out, and touches nobody's memory later.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from hicache import registry
from hicache.core.errors import CallerError

from ..address import in_folder, with_query
from ..base import Address, Entry, Status, Storage, StorageOptions, Value, tell
from ..buffers import batches, gather, scatter, size_of
from ..calls import Call, GivenUp, Workers
from ..engines.base import ENGINES, Engine, Lane, Piece
from ..journal import Journal, head_of
from ..slots import Extents, Reserved, Slots

SUMMARY = "page slots in one large file, for 3FS and other file systems: hf3fs:DIR"

_SLOT = 64 << 10
_LEAST_SLOT = 512
_MOST_SLOTS = 1 << 26
_LANE = 8 << 20  # bytes that a thread moves at a time
_DATA, _JOURNAL, _LOCK = "data", "journal", "lock"

T = TypeVar("T")


def open_storage(address: Address, options: StorageOptions) -> Storage:
    """Open a directory, or make one. Raises CallerError."""
    where = in_folder(address, "slot", "engine")
    options = with_query(options, where)
    folder = Path(where.path)
    if not options.create and not (folder / _JOURNAL).exists():
        raise CallerError(f"storage: expected a store, found none in {folder}; check the path")
    kind = _engine(where.query.get("engine", "pread"))
    slot_bytes = where.size("slot", _SLOT)
    lock = -1
    try:
        _slots(folder, slot_bytes, options.size_bytes)  # raises before anything is made
        folder.mkdir(parents=True, exist_ok=True)
        lock = _locked(folder)
        slots = _slots(folder, slot_bytes, options.size_bytes)
        engine = kind.open_engine(folder / _DATA, slots.slots * slots.slot_bytes)
        journal = Journal(folder / _JOURNAL, slots)
        journal.open()
    except (OSError, CallerError) as error:
        if lock >= 0:
            os.close(lock)
        if isinstance(error, CallerError):
            raise
        raise CallerError(
            f"storage: expected a directory that we may write, with room for its file, found "
            f"{folder}: {error.strerror}"
        ) from error
    return Hf3fs(slots, journal, engine, lock, options)


def _engine(name: str) -> Any:
    if name not in registry.names(ENGINES):
        raise registry.unknown("engine", name, registry.names(ENGINES))
    try:
        return registry.load(ENGINES, name)
    except ImportError as error:
        raise CallerError(
            f"engine: expected what {name} needs, found: {error}; build the package inside the "
            "sources of 3FS, or use engine=pread"
        ) from error


def _locked(folder: Path) -> int:
    """A lock that ends with the process. A file system without locks does without."""
    file = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK):
            return file
        os.close(file)
        raise CallerError(
            f"storage: expected that no other process uses {folder}, found one; end it, or use "
            "another directory"
        ) from error
    return file


def _slots(folder: Path, slot_bytes: int, size_bytes: int) -> Slots:
    """As the journal says, or as the options say where there is none. Raises CallerError."""
    if slot_bytes < _LEAST_SLOT or size_bytes // slot_bytes > _MOST_SLOTS:
        raise CallerError(
            f"hf3fs: expected slot={_LEAST_SLOT} or more, and at most {_MOST_SLOTS:,} slots in the "
            f"file, found slot={slot_bytes}"
        )
    found = head_of(folder / _JOURNAL)
    if found is None:
        if size_bytes < slot_bytes:
            raise CallerError(
                f"storage_size: expected the size of a new file, at least {slot_bytes:,} bytes, "
                f"found {size_bytes:,}"
            )
        return Slots(slot_bytes, size_bytes // slot_bytes)
    slot, count = found
    if size_bytes and size_bytes // slot != count:
        raise CallerError(
            f"storage_size: expected {slot * count:,} bytes, as {folder} has, found "
            f"{size_bytes:,}; leave it out, or use another directory"
        )
    return Slots(slot, count)


class Hf3fs(Storage):
    """An open directory, used by several threads at a time."""

    def __init__(
        self, slots: Slots, journal: Journal, engine: Engine, lock: int, options: StorageOptions
    ) -> None:
        self._slots, self._journal, self._engine, self._lock = slots, journal, engine, lock
        self._timeout_s, self._durable = options.timeout_s, options.durable
        self._workers: Workers[Lane] = Workers("hf3fs", engine.lane, lambda lane: lane.close())
        self._closed = False

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return [None if self._closed else known for known in self._slots.known(keys)]

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        statuses = [Status.FAILED] * len(keys)

        def job(lane: Lane, call: Call) -> list[Status]:
            for group in batches(values, _LANE):
                wanted = [values[index] for index in group]
                with self._slots.reading([keys[index] for index in group]) as found:
                    ended = self._read(lane, call, found, wanted)
                    with call.delivering():
                        for index, (status, content) in zip(group, ended, strict=True):
                            statuses[index] = status
                            if status is Status.DONE:
                                scatter(content, values[index])
                call.step()
            return statuses

        return self._run(job, statuses)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        statuses = [Status.FAILED] * len(keys)

        def job(lane: Lane, call: Call) -> list[Status]:
            for group in batches(values, _LANE):
                lane.reserve(sum(size_of(values[index]) for index in group))
                ends = []
                with call.delivering():
                    end = 0
                    for index in group:
                        end = gather(values[index], lane.memory, end)
                        ends.append(end)
                try:
                    ended = self._write(lane, call, [keys[index] for index in group], ends)
                except OSError as error:
                    tell(error)
                    ended = [_refused(error.errno)] * len(ends)
                with call.delivering():
                    statuses[group.start : group.stop] = ended
                call.step()
            return statuses

        return self._run(job, statuses)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        def job(lane: Lane, call: Call) -> list[Status]:
            with self._journal.lock:
                there = zip(keys, self._slots.known(keys), strict=True)
                self._journal.append([(key, None) for key, one in there if one], self._durable)
                gone = [self._slots.remove(key) for key in keys]
                self._journal.shorten()
            for value in gone:
                if value is not None:
                    self._slots.give_back(value)
            return [Status.MISSING if value is None else Status.DONE for value in gone]

        return self._run(job, [Status.FAILED] * len(keys))

    def entries(self, prefix: str) -> Iterator[Entry]:
        for key, size in self._slots.sizes():
            if key.startswith(prefix) and not self._closed:
                yield Entry(key, size, 0.0)

    def stats(self) -> dict[str, int | float | str]:
        sizes = self._slots.sizes()
        slot_bytes = self._slots.slot_bytes
        return {
            "values": len(sizes),
            "bytes": sum(size for _, size in sizes),
            "used_bytes": (self._slots.slots - self._slots.free) * slot_bytes,
            "capacity_bytes": self._slots.slots * slot_bytes,
            "evicted": self._slots.evicted,
            "damaged_lines": self._journal.damaged,
        }

    def troubles(self) -> str:
        damaged, copy = self._journal.damaged, self._journal.copy
        if not damaged:
            return ""
        kept = f"{copy} is as it was found" if copy.exists() else "there was no room for a copy"
        lines = "1 line of the journal was" if damaged == 1 else f"{damaged:,} lines were"
        return f"{lines} damaged, so as many values may be missing or old; {kept}"

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._workers.close(self._timeout_s):
            self._journal.close()
            self._engine.close()
            os.close(self._lock)

    def _run(self, job: Callable[[Lane, Call], T], otherwise: T) -> T:
        try:
            return self._workers.run(job, self._timeout_s)
        except (GivenUp, OSError) as error:
            tell(error)
            return otherwise

    def _read(
        self, lane: Lane, call: Call, found: Sequence[Extents | None], values: Sequence[Value]
    ) -> list[tuple[Status, memoryview]]:
        """The status of each value, and where in the lane its bytes are."""
        fits = [
            value is not None and value.size == size_of(wanted)
            for value, wanted in zip(found, values, strict=True)
        ]
        whole = [value for value, fit in zip(found, fits, strict=True) if value is not None and fit]
        lane.reserve(sum(value.size for value in whole))
        start, pieces, counts = 0, list[Piece](), list[int]()
        for value in whole:
            own = [Piece(at, start + to, size) for at, to, size in self._pieces(value)]
            pieces += own
            counts.append(len(own))
            start += value.size
        good = _whole(pieces, lane.read(pieces, call.step), counts)
        result: list[tuple[Status, memoryview]] = []
        start = number = 0
        for one, fit in zip(found, fits, strict=True):
            if one is None or not fit:
                status = Status.MISSING if one is None else Status.CORRUPT
                result.append((status, lane.memory[:0]))
                continue
            status = Status.DONE if good[number] == 0 else Status.FAILED
            result.append((status, lane.memory[start : start + one.size]))
            start, number = start + one.size, number + 1
        return result

    def _write(
        self, lane: Lane, call: Call, keys: Sequence[str], ends: Sequence[int]
    ) -> list[Status]:
        """Write the values of the lane into free slots, then record them."""
        starts = [0, *ends[:-1]]
        spare: list[int] = []
        with self._journal.lock:  # or a key that goes here is recorded behind its next value
            reserved = [
                self._slots.reserve(end - start, spare)
                for start, end in zip(starts, ends, strict=True)
            ]
            taken = [one for one in reserved if one is not None]
            try:
                gone = [(key, None) for one in taken for key, _ in one.gone]
                self._journal.append(gone, self._durable)
            except OSError:
                self._slots.undo(taken, spare)
                raise
        self._slots.give_spare(spare)
        try:
            pieces, counts = list[Piece](), list[int]()
            for start, place in zip(starts, reserved, strict=True):
                own = self._pieces(place.value) if place else []
                pieces += [Piece(at, start + to, size) for at, to, size in own]
                counts.append(len(own))
            errors = _whole(pieces, lane.write(pieces, call.step), counts)
            if self._durable:
                self._engine.sync()
        except OSError as error:
            errors = [error.errno or 1] * len(keys)
        return self._publish(keys, reserved, errors)

    def _publish(
        self, keys: Sequence[str], reserved: Sequence[Reserved | None], errors: Sequence[int]
    ) -> list[Status]:
        written = [
            (key, one.value)
            for key, one, error in zip(keys, reserved, errors, strict=True)
            if one is not None and not error
        ]
        with self._journal.lock:
            try:
                self._journal.append(written, self._durable)
                recorded = 0
            except OSError as error:
                recorded = error.errno or 1
            old = [self._slots.publish(key, value) for key, value in written if not recorded]
            self._journal.shorten()
        for value in old:
            if value is not None:
                self._slots.give_back(value)
        result: list[Status] = []
        for one, wrong in zip(reserved, errors, strict=True):
            code = errno.ENOSPC if one is None else wrong or recorded
            if one is not None and code:
                self._slots.give_back(one.value)
            result.append(_refused(code) if code else Status.DONE)
            if code:
                tell(os.strerror(code) if one else "it does not fit into the store's file")
        return result

    def _pieces(self, value: Extents) -> list[tuple[int, int, int]]:
        return list(value.pieces(self._slots.slot_bytes))


def _whole(pieces: Sequence[Piece], moved: Sequence[int], counts: Sequence[int]) -> list[int]:
    """For each value of so many pieces: 0 if all were moved whole, else an error number."""
    result: list[int] = []
    at = 0
    for count in counts:
        own = zip(pieces[at : at + count], moved[at : at + count], strict=True)
        wrong = [done for piece, done in own if done != piece.size]
        result.append(0 if not wrong else max(-wrong[0], 0) or errno.EIO)
        at += count
    return result


def _refused(code: int | None) -> Status:
    """What becomes of a value whose write ends with this error number."""
    return Status.FULL if code in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else Status.FAILED
