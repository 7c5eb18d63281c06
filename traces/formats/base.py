"""What all trace formats share: their protocols, and the reading and checking of JSON lines.

`Trace` and `Paged` are what the rest of the project sees of a trace. `Lines` yields JSON objects
with line numbers. The other functions check single fields. Does not know the fields of any format.
A trace is untrusted input: the limits below end a hostile or broken file with a one-line error
before it fills the memory.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Key, Pages
from sim.workload import Job, Workload

from ._jobs import Jobs

Record: TypeAlias = dict[str, Any]

MAX_LINE_BYTES = 8 << 20
MAX_REQUEST_TOKENS = 1 << 24  # above every published context length; stream offsets fit 24 bits
MAX_REQUESTS = 1 << 31
MAX_TIME_MS = 1 << 42  # 139 years; in nanoseconds still below 2**63
NS_PER_MS = 1_000_000

NO_TRACE = "this is no trace that hicache reads: see docs/formats.md"
_SHOWN = 40
_MISSING = object()


class Paged(Workload, Protocol):
    """A trace divided into pages of one size, for both replay modes and the statistics."""

    @property
    def jobs(self) -> Jobs: ...

    @property
    def knows_output(self) -> bool:
        """Whether `key` identifies output tokens, so that a later turn can hit them."""

    def prompt_key(self, job: Job) -> Key:
        """The key of all prompt pages that the trace identifies.

        A partial last page is included if the trace identifies it.
        """

    def chain(self, job: Job) -> Pages:
        """int64, one id for each page of `prompt_key` and then of the known output in the cache.

        Ids are dense and chained: equal ids mean equal pages after equal prefixes.
        """


class Trace(Protocol):
    """A trace that was read and checked. It does not depend on a page size."""

    @property
    def path(self) -> str: ...

    @property
    def format(self) -> str: ...

    @property
    def identity(self) -> bool:
        """Whether the file says which prompts begin alike. Without it there are lengths only: every
        prompt is unique, and the trace can drive load but no hit rate (see `need_identity`)."""

    @property
    def block_size(self) -> int | None:
        """Tokens of a block of the file's own ids; None if the file has tokens or lengths only."""

    @property
    def jobs(self) -> Jobs: ...

    @property
    def line_numbers(self) -> Sequence[int]:
        """The line of the file for each job."""

    @property
    def tenants(self) -> NDArray[np.int32]:
        """The tenant of each job: its place in `tenant_names`."""

    @property
    def tenant_names(self) -> Sequence[str]:
        """In the order of their first requests; one empty name if the file names no tenant."""

    def paged(self, page_size: int) -> Paged:
        """The trace in pages. Raises CallerError if the format does not support the page size."""


def need_identity(trace: Trace, what: str) -> None:
    """Raises CallerError if the trace has lengths only. what: the figure that needs more."""
    if not trace.identity:
        raise CallerError(
            f"{trace.path}: {what}: expected a trace that says which prompts begin alike, found "
            f"lengths only ({trace.format}); use a trace with block ids or tokens, or replay this "
            "one with --mode timed"
        )


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # the byte order mark of UTF-8
_decode = json.JSONDecoder(parse_constant=_no_constant).decode


class Lines:
    """The JSON objects of a file, one on each line, with the current line number for errors.

    raw: the lines as bytes, each of at most MAX_LINE_BYTES + 1 bytes. Blank lines are skipped.
    `first` is the first object; iteration starts with it again.
    """

    def __init__(self, path: str, raw: Iterable[bytes]) -> None:
        self.path = path
        self.number = 0
        self._raw = iter(raw)
        first = next(self._objects(), None)
        if first is None:
            self.number = 1
            self.wrong("a trace", "an empty file", "give a file with one JSON object a line")
        self.first: Record = first
        self._first_line = self.number

    def __iter__(self) -> Iterator[Record]:
        self.number = self._first_line
        yield self.first
        yield from self._objects()

    def wrong(self, expected: str, found: str, do: str) -> NoReturn:
        raise CallerError(f"{self.path}:{self.number}: expected {expected}, found {found}; {do}")

    def wrong_field(self, record: Record, field: str, expected: str, do: str = "") -> NoReturn:
        value = record.get(field, _MISSING)
        self.wrong(f"{field}: {expected}", show(value), do or "correct the field")

    def _objects(self) -> Iterator[Record]:
        for line in self._raw:
            self.number += 1
            if len(line) > MAX_LINE_BYTES:
                self.wrong(
                    f"lines of at most {MAX_LINE_BYTES} bytes",
                    "a longer one",
                    "split the request" if self.number > 1 else NO_TRACE,
                )
            if not line.strip():
                continue
            try:
                record = _decode(line.removeprefix(_BYTE_ORDER_MARK).decode("utf-8"))
            except UnicodeDecodeError as error:
                self.wrong("UTF-8 text", f"byte {line[error.start]:#04x}", "convert the file")
            except (ValueError, RecursionError) as error:
                reason = str(error).partition(": line ")[0].partition(";")[0]
                self.wrong(
                    "a JSON object",
                    f"{shorten(line.decode('utf-8').strip())} ({reason})",
                    self._one_object(),
                )
            if type(record) is not dict:
                self.wrong("a JSON object", show(record), self._one_object())
            yield record

    def _one_object(self) -> str:
        """What to do about a line that is no JSON object."""
        do = "write one JSON object a line"
        return do if self.number > 1 else f"{do}; {NO_TRACE}"


def shorten(text: str) -> str:
    """At most 40 characters of untrusted text; characters that are not printable become "?"."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: _SHOWN + 1])
    return clean if len(text) <= _SHOWN else clean[:_SHOWN] + "..."


def show(value: object) -> str:
    """A JSON value as the file writes it, shortened; "nothing" for a missing field."""
    if value is _MISSING:
        return "nothing"
    if type(value) is int and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, list | dict) and len(value) > _SHOWN:
        return f"{len(value)} {'elements' if isinstance(value, list) else 'fields'}"
    return shorten(json.dumps(value))


def integer(lines: Lines, record: Record, field: str, least: int, most: int, do: str = "") -> int:
    """A field that must be an integer from `least` to `most`. JSON's true is not an integer."""
    value = record.get(field)
    if type(value) is not int or not least <= value <= most:
        lines.wrong_field(record, field, f"an integer from {least} to {most}", do)
    return value


def nanoseconds(lines: Lines, record: Record, field: str) -> int:
    """A field in milliseconds, integer or fractional, as an integer of nanoseconds."""
    value = record.get(field)
    if type(value) is int and 0 <= value <= MAX_TIME_MS:
        return value * NS_PER_MS
    if type(value) is not float or not math.isfinite(value) or not 0 <= value <= MAX_TIME_MS:
        lines.wrong_field(record, field, f"milliseconds from 0 to {MAX_TIME_MS}")
    return round(value * NS_PER_MS)


def not_backwards(lines: Lines, arrival_ns: int, last_ns: int) -> None:
    """Raises CallerError if arrivals are not in order; a replay keeps the order of lines."""
    if arrival_ns < last_ns:
        lines.wrong(
            f"a timestamp of at least {milliseconds(last_ns)} (that of the request before)",
            milliseconds(arrival_ns),
            "sort the lines by timestamp",
        )


def milliseconds(time_ns: int) -> str:
    whole, rest = divmod(time_ns, NS_PER_MS)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)
