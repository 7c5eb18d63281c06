"""Progress on standard error: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import parent_process

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .streams import ignore_broken_pipe
from .tables import console

_LINE_EVERY_S = 5.0
_SHOWN_EVERY = 1000
_MB = 10**6
_MANY_BYTES = 20 * _MB


@contextmanager
def counting(label: str, unit: str = "requests") -> Iterator[Callable[[int], None]]:
    """As `progress`, where nobody knows how many units there will be."""
    screen = console(sys.stderr)
    if screen.is_terminal:
        columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f}"))
        with Progress(*columns, TextColumn(unit), console=screen, transient=True) as bar:
            task = bar.add_task(label, total=None)
            yield lambda done: None if done % _SHOWN_EVERY else bar.update(task, completed=done)
        return
    line = _Line(label, unit)
    yield line.show


@contextmanager
def megabytes(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """As `progress`, of bytes. Nothing for few of them, where nobody knows how many there are, and
    in a worker, whose command says how far it is."""
    if total < _MANY_BYTES or parent_process() is not None:
        yield lambda done: None
        return
    with progress(label, total // _MB, "MB") as shown:
        yield lambda done: shown(done // _MB)


class _Line:
    """Prints a line every few seconds. total: what is still to come, in words; may be empty."""

    def __init__(self, label: str, unit: str, total: str = "") -> None:
        self._label, self._end = label, f"{total} {unit}"
        self._next = time.monotonic() + _LINE_EVERY_S

    def show(self, done: int) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LINE_EVERY_S
            with ignore_broken_pipe():
                print(f"{self._label}: {done}{self._end}", file=sys.stderr, flush=True)


@contextmanager
def progress(label: str, total: int, unit: str = "requests") -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the number of units done so far."""
    screen = console(sys.stderr)
    if screen.is_terminal:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=screen, transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    yield _Line(label, unit, f" of {total}").show
