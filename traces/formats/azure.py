"""Azure LLM inference traces: CSV of TIMESTAMP, ContextTokens, GeneratedTokens.

Times are dates; they count from the first one. Nothing says which prompts begin alike. Format:
github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import _csv, base
from ._rows import About, Row
from ._sniff import Head
from .base import Lines

SUMMARY = "Azure LLM inference CSV: TIMESTAMP, ContextTokens, GeneratedTokens; lengths only"
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

SAMPLE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,600,44
2023-11-16 18:15:50.9951690,1000,109
"""

_NOTHING = "requests without a prompt or an output were left out."


def recognises(head: Head) -> bool:
    return {*COLUMNS} <= {*head.columns}


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    first_ns = -1
    for lines in about.each(files):
        about.lengths_only()
        for record in _csv.records(lines, COLUMNS):
            length, output = (record.integer(column, 0) for column in COLUMNS[1:])
            time_ns = record.date(COLUMNS[0])
            if not length or not output:
                about.notes[_NOTHING] += 1
                continue
            first_ns = time_ns if first_ns < 0 else first_ns
            base.not_backwards(lines, time_ns, first_ns)
            yield Row(time_ns - first_ns, length, output)
