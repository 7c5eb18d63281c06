"""Keeps the outcome of each row in a file as it arrives, so that a second run does only the rest.

A line is found again if the row, the time model, its constants and the simulator are the same: all
of their files are part of the key. A last line that was cut off (a killed command) runs again. Does
not predict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import BinaryIO

import hicache
import sim
from hicache.core.errors import CallerError

from ..terminal.appended import appended
from ..terminal.output import unwritable
from ..terminal.signals import deferred
from .predicting import Outcome, Task

_ROOTS = (Path(hicache.__path__[0]), Path(sim.__path__[0]), Path(__file__).parent)
_SUFFIXES = (".py", ".json")
_KEY, _OUTCOME = "key", "outcome"
_FIRST = f'{{"{_KEY}": "'.encode()  # how every line begins


def key_of(task: Task) -> str:
    """The identity of a prediction."""
    row = asdict(task.row) | {"where": ""}  # the same row may move within its file
    text = json.dumps([row, task.times, _code()], sort_keys=True)
    return sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """The digest of everything that a prediction depends on beside its row."""
    found = sha256()
    for root in _ROOTS:
        for path in sorted(root.rglob("*")):
            if path.suffix in _SUFFIXES:
                found.update(f"{path.relative_to(root.parent)}\0".encode())
                found.update(path.read_bytes())
    return found.hexdigest()


class Kept:
    """An open file of outcomes. repaired: whether a line that was cut off had to go."""

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self._path = path
        self._stream = stream
        self._done: dict[str, Outcome] = {}
        self.repaired = False
        self._read()

    def find(self, task: Task) -> Outcome | None:
        return self._done.get(key_of(task))

    def add(self, task: Task, outcome: Outcome) -> None:
        line = {_KEY: key_of(task), _OUTCOME: outcome.document()}
        try:
            with deferred():  # Ctrl-C would cut the line off
                self._stream.write(json.dumps(line).encode() + b"\n")
                self._stream.flush()
        except OSError as error:
            raise unwritable(self._path, error.strerror) from None

    def _read(self) -> None:
        self._stream.seek(0)
        end = 0
        for number, line in enumerate(self._stream, 1):
            if not line.endswith(b"\n") and line.startswith(_FIRST[: len(line)]):
                self.repaired = True
                self._stream.truncate(end)
                break
            end += len(line)
            self._take(number, line)
        self._stream.seek(0, 2)

    def _take(self, number: int, line: bytes) -> None:
        try:
            if not line.endswith(b"\n"):
                raise ValueError("cut off")
            found = json.loads(line)
            self._done[found[_KEY]] = Outcome.of(found[_OUTCOME])
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise CallerError(
                f"{self._path}:{number}: expected a row that was predicted before, found "
                f"{line[:40].decode(errors='replace')!a}; name another file"
            ) from None


@contextmanager
def opened(path: str) -> Iterator[Kept]:
    """The file at this path, made if it is missing. Raises CallerError if it is another one, or if
    another command writes to it."""
    with appended(path) as stream:
        yield Kept(path, stream)
