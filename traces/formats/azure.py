"""Azure LLM inference traces: CSV of TIMESTAMP, ContextTokens, GeneratedTokens.

Times are dates; they count from the first one. Nothing says which prompts begin alike. Format:
github.com/Azure/AzurePublicDataset.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import _csv, base
from ._rows import About, Head, Row
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
    for row in _csv.rows(files, about, COLUMNS, _csv.date, _NOTHING):
        first_ns = row.arrival_ns if first_ns < 0 else first_ns
        assert about.lines is not None
        base.not_backwards(about.lines, row.arrival_ns, first_ns)
        yield row._replace(arrival_ns=row.arrival_ns - first_ns)
