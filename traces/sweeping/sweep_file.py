"""The file of a sweep: JSON lines, a header for each grid and a line for each point that is done.

Lines are only ever added, so what is done stays whatever ends the command. A line that was cut off
(a killed command, a full disk) is removed when the file is opened again. Does not know what a point
measures; see work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO

from hicache.core.errors import CallerError

from ..terminal.appended import appended
from ..terminal.output import unwritable
from ..terminal.signals import deferred
from .work import KIND as POINT

KIND = "sweep"
_SHOWN = 16  # digits of a hash
SCHEMA = 1  # grows when a key changes its meaning or goes
_FIRST = f'{{"schema": {SCHEMA}, "kind": "{KIND}"'.encode()  # how every header begins


class SweepFile:
    """A file that is open for adding. done: documents of points, by key. repaired: whether a line
    that was cut off had to go."""

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.path = path
        self.done: dict[str, dict[str, Any]] = {}
        self.repaired = False
        self._stream = stream
        self._headers: list[dict[str, Any]] = []
        self._read()

    def begin(self, given: Mapping[str, Any]) -> None:
        """Adds the header, unless the last grid was the same one. Raises CallerError if the file
        belongs to another trace or another version of this project."""
        header: dict[str, Any] = {"schema": SCHEMA, "kind": KIND, **given}
        if self._headers:
            before = self._headers[0]
            self._same("the trace", before["trace"]["sha256"], header["trace"]["sha256"])
            self._same("this version", before.get("decisions"), header["decisions"])
        told = ("base", "grid")
        if not self._headers or any(self._headers[-1].get(key) != header[key] for key in told):
            self._append(header)

    def _same(self, what: str, theirs: object, ours: str) -> None:
        if theirs != ours:
            raise CallerError(
                f"{self.path}: expected a sweep of {what} ({ours[:_SHOWN]}), found one of another "
                f"({str(theirs)[:_SHOWN]}); name another file"
            )

    def add(self, point: dict[str, Any]) -> None:
        """Adds a point that is done."""
        self.done[point["key"]] = point
        self._append(point)

    def _append(self, line: Mapping[str, Any]) -> None:
        try:
            with deferred():  # Ctrl-C would cut the line off
                self._stream.write(json.dumps(line).encode() + b"\n")
                self._stream.flush()
                os.fsync(self._stream.fileno())
        except OSError as error:
            raise unwritable(self.path, error.strerror) from None

    def _read(self) -> None:
        number = end = 0
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            if not line.endswith(b"\n"):
                if not self._headers and not _is_beginning(line):
                    self._take(number, line)
                self.repaired = True
                self._stream.truncate(end)
                break
            end += len(line)
            self._take(number, line)
        self._stream.seek(0, os.SEEK_END)

    def _take(self, number: int, line: bytes) -> None:
        try:
            found = json.loads(line)
            kind = found["kind"]
            if not line.endswith(b"\n"):
                raise ValueError("cut off")
            if kind == KIND:
                found["trace"]["sha256"]
                self._headers.append(found)
            elif kind == POINT and self._headers:
                self.done[found["key"]] = found
            else:
                raise ValueError(f"kind {kind}")
        except (ValueError, KeyError, TypeError, RecursionError):
            expected = "a point or a header" if self._headers else "the header"
            raise CallerError(
                f"{self.path}:{number}: expected {expected} of a sweep, found "
                f"{line[:40].decode(errors='replace')!a}; name another file"
            ) from None


def _is_beginning(line: bytes) -> bool:
    """Whether this can be the beginning of a header."""
    return line.startswith(_FIRST[: len(line)])


@contextmanager
def opened(path: str) -> Iterator[SweepFile]:
    """The sweep file at this path, made if it is missing. Raises CallerError if it is none, or if
    another command writes to it."""
    with appended(path) as stream:
        yield SweepFile(path, stream)
