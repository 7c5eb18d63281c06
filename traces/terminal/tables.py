"""The look of tables: 80 columns, no colour when piped. Does not compute any number."""

from __future__ import annotations

import sys
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

WIDTH = 80


class _Console(Console):
    """A console that raises BrokenPipeError. rich would end the process with code 1 instead."""

    def on_broken_pipe(self) -> None:
        raise


def console(stream: TextIO | None = None, piped: int = WIDTH) -> Console:
    """A console for standard output, or for `stream`.

    On a terminal it has the terminal's width and colours; elsewhere it has `piped` plain columns.
    """
    stream = stream or sys.stdout
    width = None if stream.isatty() else piped
    return _Console(file=stream, width=width, highlight=False, soft_wrap=False)


def table(title: str, *columns: str) -> Table:
    """A table with a title. The first column is text, the others are numbers."""
    result = Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
    )
    for index, column in enumerate(columns):
        result.add_column(column, justify="right" if index else "left", overflow="fold")
    result.show_header = any(columns)
    return result


def pairs(title: str, rows: list[tuple[str, str]]) -> Table:
    """A table of names and their values."""
    result = Table(
        title=f"\n{title}", title_justify="left", title_style="bold", box=None, pad_edge=False
    )
    result.show_header = False
    result.add_column(no_wrap=True, style="dim")
    result.add_column(overflow="fold")
    for name, value in rows:
        result.add_row(name, value)
    return result


def percent(rate: float) -> str:
    return f"{rate * 100:.3f} %"
