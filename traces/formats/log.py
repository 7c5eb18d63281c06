"""A log of the user's own: CSV, JSON objects or Parquet, with columns that --columns names.

A file whose columns have the names of their roles (time, input, output, session, turn) needs no
option. What prompts share is assumed; see _log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from . import _log
from ._log_options import NEEDED, ROLES
from ._rows import About
from ._sniff import Head
from .base import Lines, Record, Trace

SUMMARY = "a log of your own, CSV, JSON lines or Parquet: say its columns with --columns"

SAMPLE = """\
time,input,output,session,turn
2026-11-23T10:00:00Z,600,40,a,1
2026-11-23T10:00:05Z,700,30,a,2
"""


def recognises(head: Head) -> bool:
    return {*NEEDED} <= {*_names(head)} or head.line.startswith("PAR1")


def read(files: Iterable[Lines], about: About, limit: int) -> Trace:
    lines = next(iter(files))
    return _log.read([lines], about, _columns(lines), "log", limit)


def texts(
    files: Iterable[Lines],
    about: About,
    limit: int,
    made_by: Record,
    done: Callable[[int], None],
) -> Iterator[str]:
    lines = next(iter(files))
    return _log.texts([lines], about, _columns(lines), limit, made_by, done)


def _columns(lines: Lines) -> str:
    """The roles that are names of columns."""
    found = {*NEEDED, *_names(Head(lines))}
    return ",".join(f"{role}={role}" for role in ROLES if role in found)


def _names(head: Head) -> Iterable[str]:
    return head.columns or head.keys
