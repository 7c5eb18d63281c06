"""BurstGPT traces: CSV of Timestamp (s), Model, Request tokens, Response tokens, Log Type.

Requests without a response failed, and are left out. Newer files have a Session ID; those of one
session have the same. Nothing says which prompts begin alike. Format: github.com/HPMLL/BurstGPT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import _csv, base
from ._rows import About, Row
from ._sniff import Head
from .base import Lines

SUMMARY = "BurstGPT CSV: Timestamp (s), Request tokens, Response tokens; lengths only"
COLUMNS = ("Timestamp", "Request tokens", "Response tokens")

SAMPLE = """\
Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type
5,ChatGPT,600,18,618,Conversation log
45.5,GPT-4,1000,10,1010,API log
"""

_FAILED = "requests without a prompt or a response were left out; they failed."


def recognises(head: Head) -> bool:
    return {*COLUMNS} <= {*head.columns}


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    for lines in about.each(files):
        about.lengths_only()
        for record in _csv.records(lines, COLUMNS):
            length, output = (record.integer(column, 0) for column in COLUMNS[1:])
            if not length or not output:
                about.notes[_FAILED] += 1
                continue
            session = record.values.get("Session ID", "")[: base.MOST_NAME] or None
            yield Row(record.seconds(COLUMNS[0]), length, output, session=session)
