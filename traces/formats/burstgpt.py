"""BurstGPT traces: CSV of Timestamp (s), Model, Request tokens, Response tokens, Log Type.

Requests without a response failed, and are left out. Newer files have a Session ID; those of one
session have the same. Nothing says which prompts begin alike. Format: github.com/HPMLL/BurstGPT.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import _csv
from ._rows import About, Head, Row
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
    return _csv.rows(files, about, COLUMNS, _csv.seconds, _FAILED, "Session ID")
