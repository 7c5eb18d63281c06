"""The file of a sweep: JSON lines, a header for each grid and a line for each point that is done.

Does not know what a point measures; see work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO

from hicache.core.errors import CallerError

from ..terminal.appended import Lines
from .work import KIND as POINT

KIND = "sweep"
_SHOWN = 16  # digits of a hash
SCHEMA = 1  # grows when a key changes its meaning or goes


class SweepFile(Lines):
    """done: documents of points, by key."""

    begins = f'{{"schema": {SCHEMA}, "kind": "{KIND}"'.encode()

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.done: dict[str, dict[str, Any]] = {}
        self._headers: list[dict[str, Any]] = []
        super().__init__(path, stream)

    def begin(self, given: Mapping[str, Any]) -> None:
        """Adds the header, unless the last grid was the same one. Raises CallerError if the file
        belongs to another trace or another version of this project."""
        header: dict[str, Any] = {"schema": SCHEMA, "kind": KIND, **given}
        if self._headers:
            before = self._headers[0]
            self._same("the trace", before["trace"]["sha256"], header["trace"]["sha256"])
            self._same("this version", before.get("decisions"), header["decisions"])
        told = ("base", "grid")
        if not self._headers or any(self._headers[-1].get(key) != header[key] for key in told):
            self.append(header)

    def _same(self, what: str, theirs: object, ours: str) -> None:
        if theirs != ours:
            raise CallerError(
                f"{self.path}: expected a sweep of {what} ({ours[:_SHOWN]}), found one of another "
                f"({str(theirs)[:_SHOWN]}); name another file"
            )

    def take(self, line: Any) -> None:
        if line["kind"] == KIND:
            line["trace"]["sha256"]
            self._headers.append(line)
        elif line["kind"] == POINT and self._headers:
            self.done[line["key"]] = line
        else:
            raise ValueError

    def expected(self) -> str:
        return f"{'a point or a header' if self._headers else 'the header'} of a sweep"
