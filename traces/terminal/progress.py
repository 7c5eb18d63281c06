"""Progress on standard error: a bar on a terminal, a plain line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .streams import ignore_broken_pipe
from .tables import console

_LINE_EVERY_S = 5.0


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
    next_line = time.monotonic() + _LINE_EVERY_S

    def print_line(done: int) -> None:
        nonlocal next_line
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + _LINE_EVERY_S
            with ignore_broken_pipe():
                print(f"{label}: {done} of {total} {unit}", file=sys.stderr, flush=True)

    yield print_line
