"""The look of tables and sentences (80 columns, no colour when piped), and progress on standard
error: a bar on a terminal, a plain line every few seconds elsewhere.

Text is printed as it is: rich's markup is off, and unsafe characters are escaped (see streams).
"""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table

from .streams import name as shown_name
from .streams import raw, silence_std_streams, visible

WIDTH = 80
_LINE_EVERY_S = 5.0


class _Console(Console):
    """A console that prints no unsafe character but those of its own colours.

    Where rich would end the process with code 1, the command goes on.
    """

    def on_broken_pipe(self) -> None:
        silence_std_streams()

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            unsafe = not segment.control and visible(segment.text) != segment.text
            yield Segment(visible(segment.text), segment.style) if unsafe else segment


def console(stream: TextIO | None = None) -> Console:
    """A console for standard output, or for `stream`.

    On a terminal it has the terminal's width and colours; elsewhere it has 80 plain columns.
    """
    stream = stream or sys.stdout
    width = None if stream.isatty() else WIDTH
    return _Console(file=raw(stream), width=width, highlight=False, markup=False, emoji=False)


def table(title: str, *columns: str) -> Table:
    """A table with a title. The first column is text, the others are numbers."""
    result = _titled(title, box.SIMPLE_HEAD)
    for index, column in enumerate(columns):
        result.add_column(column, justify="right" if index else "left", overflow="fold")
    result.show_header = any(columns)
    return result


def pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    """A table of names and their values."""
    result = _titled(title, None)
    result.show_header = False
    result.add_column(no_wrap=True, style="dim")
    result.add_column(overflow="fold")
    for name, value in rows:
        result.add_row(name, value)
    return result


def _titled(title: str, lines: box.Box | None) -> Table:
    return Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=lines,
        show_edge=False,
        pad_edge=False,
    )


def print_sentences(title: str, sentences: Sequence[str], stream: TextIO | None = None) -> None:
    """Sentences in plain words, each on lines of its own."""
    out = console(stream)
    out.print(f"\n{title}", style="bold")
    for sentence in sentences:
        out.print(sentence)


def print_written(paths: Iterable[str | None], stream: TextIO | None = None) -> None:
    """Which files were written; None and "-" are none."""
    written = [shown_name(path) for path in paths if path not in (None, "-")]
    if written:
        console(stream).print(f"wrote {', '.join(written)}")


@contextmanager
def progress(label: str, total: int, unit: str = "requests") -> Iterator[Callable[[int], None]]:
    """Yields a function that takes the number of units done so far."""
    screen = console(sys.stderr)
    if screen.is_terminal:
        text = TextColumn("{task.description}")
        columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=screen, transient=True) as bar:
            task = bar.add_task(label, total=total)
            yield lambda done: bar.update(task, completed=done)
        return
    next_s = time.monotonic() + _LINE_EVERY_S

    def show(done: int) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + _LINE_EVERY_S
            print(f"{label}: {done} of {total} {unit}", file=sys.stderr, flush=True)

    yield show
