"""The journal of a file of slots: a text file of one record a line, each with its checksum.

A line that is not whole is skipped, and costs the value that it is about: the last one was cut by
a crash, others were damaged. The journal as it was is kept beside a new one then, and the store
says so. What is said twice counts once, so a doubled line costs nothing.

    [KEY, SIZE, RUNS]    the value of a key lies there; no runs: it has none any more
    {"format": ...}      the size and number of slots; twice at the beginning, since all need it
    {"evicted": COUNT}   how many values had to make room so far
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError

from .slots import Extents, Slots

FORMAT = 1
_SPARE = 10_000  # records more than values, before the journal is written anew
_HEADS = 2
_SEARCHED = 16  # lines, for a head
_MOST_HEAD = 4096
_MOST_LINE = 64 << 20  # bytes
_BEGINNING = re.compile(rb"(?<!^)[0-9a-f]{8} (?=[\[{])")

Record = tuple[str, Extents | None]


class Journal:
    """The file of records. Used by one thread at a time (`lock`)."""

    def __init__(self, path: Path, slots: Slots) -> None:
        self.lock = threading.Lock()
        self.damaged = 0  # lines that were not whole when it was opened
        self._path, self._slots = path, slots
        self._head = {"format": FORMAT, "slot_bytes": slots.slot_bytes, "slots": slots.slots}
        self._records = 0
        self._file = -1

    @property
    def copy(self) -> Path:
        """Where a damaged journal is kept."""
        return self._path.with_suffix(".damaged")

    def open(self) -> None:
        """Read what is there, and go on behind it. Raises OSError."""
        found = _read(self._path, self._slots)
        self._slots.adopt(found.records)
        self._slots.evicted = found.evicted
        self._records, self.damaged = len(found.records), found.damaged
        if found.damaged:
            self._keep_copy()
        if found.damaged or found.heads < _HEADS or self._is_long():
            try:
                self._write_anew()
                return
            except OSError:
                if not found.heads:
                    raise  # on a full disk the old one serves as well
        self._file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        os.ftruncate(self._file, found.end)

    def append(self, records: Iterable[Record], durable: bool) -> None:
        """Add records; None: the key is gone. Raises OSError; then nothing counts as recorded."""
        lines = [_line(_record(key, value)) for key, value in records]
        if not lines:
            return
        if self._slots.evicted:
            lines.append(_line({"evicted": self._slots.evicted}))
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

    def shorten(self) -> None:
        """Write it anew if most of it does not count any more. Everything that was appended must be
        true of the slots by now."""
        if self._is_long():
            with suppress(OSError):  # on a full disk the old one serves as well
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
        try:
            with os.fdopen(os.dup(file), "wb") as output:
                output.writelines([_line(self._head)] * _HEADS)
                output.write(_line({"evicted": self._slots.evicted}))
                output.writelines(_line(_record(key, value)) for key, value in records)
                output.flush()
                os.fsync(output.fileno())
            os.replace(draft, self._path)
        except OSError:
            os.close(file)
            draft.unlink(missing_ok=True)
            raise
        self.close()
        self._file, self._records = file, len(records)

    def _keep_copy(self) -> None:
        """Of the first damage, if there is room for it: what comes later may follow from it."""
        if not self.copy.exists():
            try:
                shutil.copyfile(self._path, self.copy)
            except OSError:
                self.copy.unlink(missing_ok=True)


def head_of(path: Path) -> tuple[int, int] | None:
    """(slot_bytes, slots) of a journal; None if there is none yet. Raises CallerError for a file of
    another format."""
    try:
        with path.open("rb") as file:
            first = [one for _ in range(_SEARCHED) for one in _parts(file.readline(_MOST_HEAD))]
    except FileNotFoundError:
        return None
    heads: list[Any] = [one for one in first if isinstance(one, dict) and "format" in one]
    head = heads[0] if heads else None
    if head is None and first:
        found = "one whose first line is damaged"
    elif head is None or head.get("format") != FORMAT:
        found = "another file" if head is None else str(head.get("format"))
    else:
        return head["slot_bytes"], head["slots"]
    raise CallerError(
        f"storage: expected {path} to be a journal of format {FORMAT}, found {found}; use "
        "another directory"
    )


@dataclass(slots=True)
class _Found:
    """What a journal says. end: where its last whole line ends."""

    records: list[Record] = field(default_factory=list)
    heads: int = 0
    evicted: int = 0
    damaged: int = 0
    end: int = 0


def _read(path: Path, slots: Slots) -> _Found:
    result = _Found()
    if not path.exists():
        return result
    with path.open("rb") as file:
        while line := file.readline(_MOST_LINE):
            good = [one for one in _parts(line) if _take(one, slots, result)]
            result.damaged += b"".join(map(_line, good)) != line
            if good or line.endswith(b"\n"):
                result.end += len(line)
    return result


def _take(said: Any, slots: Slots, result: _Found) -> bool:
    """Add what a line says. False: it does not make sense."""
    match said:
        case {"format": _}:
            result.heads += 1
        case {"evicted": int(count)}:
            result.evicted = max(result.evicted, count)
        case [str(key), int(size), list(runs)]:
            try:
                value = Extents(size, [(first, count) for first, count in runs])
            except (TypeError, ValueError):
                return False
            if runs and not slots.can_hold(value):
                return False
            result.records.append((key, value if runs else None))
        case _:
            return False
    return True


def _record(key: str, value: Extents | None) -> list[object]:
    return [key, value.size if value else 0, value.runs if value else []]


def _line(record: object) -> bytes:
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _parts(line: bytes) -> list[Any]:
    """What a line says. Where the end of one is damaged, the next one is in the same line."""
    whole = _checked(line)
    if whole is not None:
        return [whole]
    starts = [0, *(found.start() for found in _BEGINNING.finditer(line)), len(line)]
    found = (_checked(line[start : end - 1] + b"\n") for start, end in pairwise(starts))
    return [one for one in found if one is not None]


def _checked(line: bytes) -> Any:
    """The record of a line; None if it is not whole."""
    text = line[9:-1]
    if line != b"%08x %s\n" % (zlib.crc32(text), text):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
