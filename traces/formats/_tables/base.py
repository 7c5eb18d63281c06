"""The interface of tables: one kind of file with rows and named columns for each file of this room.

A module has `rows(lines, names)`, which yields the values of the named columns of each row, in the
order of the names, and keeps `lines` at the row for errors. A value is None where the row has none.
It raises CallerError for a column that the table has not, and takes bounded memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NoReturn, Protocol

from hicache.core.errors import closest

from .. import base
from ..base import Lines

MOST_COLUMNS = 10_000
_LISTED = 12
_COMPARED = 500


class Table(Protocol):
    def rows(self, lines: Lines, names: Sequence[str]) -> Iterator[Sequence[Any]]:
        """See the module. Raises CallerError with the row."""


def missing(lines: Lines, name: str, found: Sequence[str]) -> NoReturn:
    """Raises CallerError for a column that is not there. found: the columns that are."""
    listed = ", ".join(base.shorten(one) for one in found[:_LISTED])
    more = f" and {len(found) - _LISTED:,} more" if len(found) > _LISTED else ""
    near = [one for one in found[:_COMPARED] if len(one) <= base.MOST_NAME]
    lines.wrong(
        f"a column {base.shorten(name)}",
        f"the columns {listed}{more}{closest(name, near)}",
        "name those of the log, such as --columns time=ts,input=prompt_tokens,output=answer_tokens",
    )
