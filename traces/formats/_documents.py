"""Reads JSON documents: one of bounded size whole, or a list of any length element by element.

Does not know the fields of any format.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

from . import base
from .base import Lines, Record

MAX_DOCUMENT_BYTES = 64 << 20
_PIECE = 1 << 20  # characters
_SPACE = " \t\r\n"


class _Text:
    """The text of a file, in a window that grows at its end and is cut at its beginning."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.window = ""
        self.place = 0
        self._pieces = lines.pieces()
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._line = 1

    def grow(self) -> bool:
        """Reads at least as much again as the window has. False at the end of the file."""
        parts, count = [], 0
        wanted = max(_PIECE, len(self.window) - self.place)
        while count < wanted:
            piece = next(self._pieces, None)
            try:
                text = self._decoder.decode(piece or b"", final=piece is None)
            except UnicodeDecodeError as error:
                found = f"byte {error.object[error.start]:#04x}"
                self.lines.wrong("UTF-8 text", found, "convert the file")
            parts.append(text)
            count += len(text)
            if piece is None:
                break
        self._line += self.window.count("\n", 0, self.place)
        self.window = self.window[self.place :] + "".join(parts)
        self.place = 0
        return bool(count)

    def skip(self, extra: str = "") -> str:
        """Passes over spaces. The next character, "" at the end."""
        while True:
            while self.place < len(self.window):
                char = self.window[self.place]
                if char not in _SPACE and char not in extra:
                    return char
                self.place += 1
            if not self.grow():
                return ""

    def value(self) -> Any:
        """The JSON value here, of at most MAX_DOCUMENT_BYTES characters."""
        while True:
            try:
                value, end = base.decoder.raw_decode(self.window, self.place)
                if end < len(self.window) or not self.grow():
                    self.place = end
                    return value
            except json.JSONDecodeError as error:
                # what is cut off by the window cannot be told from what is wrong
                if len(self.window) - self.place > MAX_DOCUMENT_BYTES:
                    self.wrong(
                        f"a JSON value of at most {MAX_DOCUMENT_BYTES} bytes", "a larger one"
                    )
                if not self.grow():
                    self.place = error.pos
                    self.wrong("JSON", f"{self._here()} ({error.msg})")
            except (ValueError, RecursionError) as error:
                self.wrong("JSON", str(error).partition(";")[0])

    def wrong(self, expected: str, found: str) -> None:
        """Raises CallerError with the line."""
        self.lines.element = ""
        self.lines.number = self._line + self.window.count("\n", 0, self.place)
        self.lines.wrong(expected, found, base.NO_TRACE)

    def _here(self) -> str:
        return base.shorten(self.window[self.place : self.place + 60].strip()) or "the end"


def whole(lines: Lines) -> Record:
    """The one object of the file. Raises CallerError if there is more in it."""
    text = _Text(lines)
    if text.skip() != "{":
        text.wrong("a JSON object", text._here())
    found: Record = text.value()
    if text.skip():
        text.wrong("one JSON object in the file", "more after it")
    return found


def elements(lines: Lines) -> Iterator[Record]:
    """The objects of a JSON list, or of a file with one on each line. `lines.element` and
    `lines.number` say which one, the latter counted from 1."""
    text = _Text(lines)
    is_list = text.skip() == "["
    if is_list:
        text.place += 1
    count = 0
    while char := text.skip("," if is_list and count else ""):
        if is_list and char == "]":
            text.place += 1
            if text.skip():
                text.wrong("the end of the file after the list", text._here())
            return
        if char != "{":
            text.wrong("a JSON object", text._here())
        record = text.value()
        count += 1
        lines.number = count
        lines.element = f"[{count - 1}]"
        yield record
    if is_list:
        text.wrong("the end of the list", "the end of the file")
