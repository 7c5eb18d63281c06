"""Reads the JSON lines of an untrusted text: bounded and strict, with one-line errors.

Lives here: reading, and quoting values in messages. Does not open files (see hicache/files) or
interpret lines (see tape).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

from hicache.core.errors import CallerError
from hicache.files import once

MOST_BYTES = 64 << 20
MOST_LINE = 4 << 20  # characters; parsing a line takes many times its length
_QUOTED = 40


class _Strange(ValueError):
    """JSON that a parser accepts, but this reader does not."""


def quoted(value: object) -> str:
    """Returns a value for a message: printable, on one line, and short."""
    text = value[: _QUOTED + 1] if isinstance(value, str) else value
    said = ascii(text)
    return said if len(said) <= _QUOTED + 2 else f"{said[:_QUOTED]}..."


def rows(text: str, name: str) -> Iterator[dict[str, Any]]:
    """Yields the object of each line. Raises CallerError for the first line without one."""
    for number, line in enumerate(io.StringIO(text), 1):
        line = line.removesuffix("\n")
        where = f"{name}, line {number}"
        if len(line) > MOST_LINE:
            raise CallerError(
                f"{where}: expected at most {MOST_LINE} characters, found {len(line)}; the file "
                "was edited, or is something else"
            )
        try:
            row = json.loads(line, object_pairs_hook=_once, parse_constant=_no_number)
        except _Strange as error:
            raise CallerError(f"{where}: {error}; mend the line or record the tape again") from None
        except (ValueError, RecursionError):  # also 5,000 digits, or deeply nested brackets
            raise CallerError(
                f"{where}: expected JSON, found {quoted(line)}; the file was cut off or edited"
            ) from None
        if not isinstance(row, dict):
            raise CallerError(
                f"{where}: expected an object, found {quoted(line)}; mend the line or record the "
                "tape again"
            )
        yield row


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    try:
        return once(pairs)
    except ValueError as error:
        raise _Strange(f"expected each name once, found {error}") from None


def _no_number(word: str) -> NoReturn:
    raise _Strange(f"expected JSON, found {word}, which is no number of it")


def stranger(row: Iterable[str], known: Iterable[str]) -> str:
    """Returns the first unknown name, quoted, or ""."""
    found = sorted(set(row) - set(known))
    return quoted(found[0]) if found else ""
