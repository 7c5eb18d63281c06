"""How tables look: 80 columns, no colour where it is piped. Must not live here: any number."""

from __future__ import annotations

import sys
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 80


class _Console(Console):
    """It leaves it to us what becomes of a run whose reader went away; rich ends it with code 1."""

    def on_broken_pipe(self) -> None:
        raise


def console(stream: TextIO | None = None, piped: int = WIDTH) -> Console:
    """Standard output: the terminal's own width and colours, or `piped` plain columns."""
    stream = stream or sys.stdout
    width = None if stream.isatty() else piped
    return _Console(file=stream, width=width, highlight=False, soft_wrap=False)


def table(title: str, *columns: str) -> Table:
    """A titled table whose columns but the first are numbers, unless there are only two."""
    made = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for place, column in enumerate(columns):
        made.add_column(column, justify="right" if place else "left", overflow="fold")
    made.show_header = any(columns)
    return made


def pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    """A table of names and what they stand for."""
    made = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    made.show_header = False
    made.add_column(no_wrap=True, style="dim")
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(name, value)
    return made


def percent(rate: float) -> str:
    return f"{rate * 100:.3f} %"
