"""Files to which a command adds a line whenever something is done, such as the points of a sweep.

Lines are JSON objects and are only ever added, so what is done stays whatever ends the command. A
line that was cut off (a killed command, a full disk) is removed when the file is opened again. One
command at a time writes to such a file. Does not know what a line holds.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Self

from hicache.core.errors import CallerError

from .output import unwritable
from .signals import deferred


class Lines:
    """An open file. begins: how its first line begins, so that another file is never cut off.
    repaired: whether a line that was cut off had to go."""

    begins = b""

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.path = path
        self.repaired = False
        self._stream = stream
        self._read()

    @classmethod
    @contextmanager
    def opened(cls, path: str) -> Iterator[Self]:
        """The file at this path, made if it is missing, for reading and adding. Raises CallerError
        if it cannot be, if it is another one, or if another command writes to it."""
        try:
            stream = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise unwritable(path, error.strerror) from None
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CallerError(
                    f"{path}: expected that nobody else writes to it, found another command that "
                    "does; wait for it, or name another file"
                ) from None
            yield cls(path, stream)

    def take(self, line: Any) -> None:
        """Takes what a line holds. Raises one of the errors of a wrong shape if it is none of this
        file."""
        raise NotImplementedError

    def expected(self) -> str:
        """What the next line should be, in words."""
        raise NotImplementedError

    def append(self, line: Mapping[str, Any]) -> None:
        try:
            with deferred():  # Ctrl-C would cut the line off
                self._stream.write(json.dumps(line).encode() + b"\n")
                self._stream.flush()
                os.fsync(self._stream.fileno())
        except OSError as error:
            raise unwritable(self.path, error.strerror) from None

    def _read(self) -> None:
        end = 0
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            whole = line.endswith(b"\n")
            if not whole and (number > 1 or self.begins.startswith(line[: len(self.begins)])):
                self.repaired = True
                self._stream.truncate(end)
                break
            end += len(line)
            try:
                if not whole:
                    raise ValueError("cut off")
                self.take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise CallerError(
                    f"{self.path}:{number}: expected {self.expected()}, found "
                    f"{line[:40].decode(errors='replace')!a}; name another file"
                ) from None
        self._stream.seek(0, os.SEEK_END)
