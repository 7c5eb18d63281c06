"""Files to which a command adds a line whenever something is done, such as the points of a sweep.

One command at a time writes to such a file. Does not know what a line holds.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from hicache.core.errors import CallerError

from .output import unwritable


@contextmanager
def appended(path: str) -> Iterator[BinaryIO]:
    """The file at this path, made if it is missing, for reading and adding. Raises CallerError if
    it cannot be, or if another command writes to it."""
    try:
        stream = open(path, "a+b")  # noqa: SIM115
    except OSError as error:
        raise unwritable(path, error.strerror) from None
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise CallerError(
                f"{path}: expected that nobody else writes to it, found another command that does; "
                "wait for it, or name another file"
            ) from None
        yield stream
