"""Traces of SplitwiseSim: CSV of request_id, arrival_timestamp (s), prompt_size, token_size.

Nothing says which prompts begin alike. Format: github.com/Mutinifni/splitwise-sim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import _csv
from ._rows import About, Head, Row
from .base import Lines

SUMMARY = "SplitwiseSim CSV: arrival_timestamp (s), prompt_size, token_size; lengths only"
COLUMNS = ("arrival_timestamp", "prompt_size", "token_size")

SAMPLE = """\
request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size
0,2,0,0.0,1,600,13
1,2,0,1.25,1,1000,7
"""


def recognises(head: Head) -> bool:
    return {*COLUMNS} <= {*head.columns}


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    return _csv.rows(files, about, COLUMNS, _csv.seconds)
