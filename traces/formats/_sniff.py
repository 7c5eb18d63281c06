"""The beginning of a file, by which a format recognises it: its kind, and the names that it uses.

Lives here: finding names without parsing the file, which may be a document of any size. Does not
know any format.
"""

from __future__ import annotations

import csv
import json
import re
from functools import cached_property

from .base import Lines

_LOOKED_AT = 1 << 16  # bytes
_MOST_COLUMNS = 200
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')


class Head:
    """The beginning of a file. line: its first line that is not blank."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self.line = _text(lines.head)

    @cached_property
    def text(self) -> str:
        """The first lines."""
        return _text(self._lines.beginning(_LOOKED_AT))

    @cached_property
    def keys(self) -> frozenset[str]:
        """The names of the fields of the first JSON object, or of the first one of a list; empty
        for other files."""
        if not self.line.startswith(("{", "[")):
            return frozenset()
        text = self.line if self.line.endswith(("}", "]")) else self.text
        start = text.find("{")
        if text[:start].strip(" \t\r\n["):
            return frozenset()
        return frozenset(_keys(text[start:]))

    @property
    def is_list(self) -> bool:
        """Whether the file begins as a JSON list."""
        return self.line.startswith("[")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names in the first line of a CSV file; empty for other files."""
        if self.line.startswith(("{", "[")) or "," not in self.line:
            return ()
        try:
            row = next(csv.reader([self.line]), [])
        except csv.Error:
            return ()
        return tuple(name.strip() for name in row[:_MOST_COLUMNS])


def _text(raw: bytes) -> str:
    return raw[:_LOOKED_AT].removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace").strip()


def _keys(text: str) -> list[str]:
    """The names of the outermost object that begins the text, which may end anywhere."""
    found: list[str] = []
    depth, place = 0, 0
    while place < len(text):
        char = text[place]
        if char == '"':
            string = _STRING.match(text, place)
            if string is None:
                break
            place = string.end()
            if depth == 1 and text[place : place + 32].lstrip().startswith(":"):
                found.append(_name(string[0]))
            continue
        depth += (char in "{[") - (char in "}]")
        if not depth:
            break
        place += 1
    return found


def _name(quoted: str) -> str:
    try:
        return str(json.loads(quoted))
    except ValueError:
        return quoted[1:-1]
