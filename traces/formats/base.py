"""What all trace formats share: their protocols, and the reading and checking of JSON lines.

`Trace` and `Paged` are what the rest of the project sees of a trace. `Lines` yields the lines of a
file, or the JSON objects on them, and knows where it is. The other functions check single fields.
Does not know the fields of any format.
A trace is untrusted input: the limits below end a hostile or broken file with a one-line error
before it fills the memory.
"""

from __future__ import annotations

import hashlib
import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

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
MAX_BLOCK_TOKENS = 1 << 24
MAX_TIME_MS = 1 << 42  # 139 years; in nanoseconds still below 2**63
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

MOST_NAME = 256  # characters of the name of a session, stream or request

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

    @property
    def prompt_pages(self) -> Pages:
        """The pages of `prompt_key` by request: one each, by its number in the trace."""

    def prompt_key(self, job: Job) -> Key:
        """The key of all prompt pages that the trace identifies.

        A partial last page is included if the trace identifies it.
        """

    def chain(self, job: Job) -> Pages:
        """int64, one id for each page of `prompt_key` and then of the known output in the cache.

        Ids are dense and chained: equal ids mean equal pages after equal prefixes.
        """


class Measured(NamedTuple):
    """What a log says was measured, over the requests read; None where it does not.

    cached_tokens: prompt tokens that the service found cached. ttft_p50_ns: the median time to
    first token.
    """

    cached_tokens: int | None = None
    ttft_p50_ns: int | None = None


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
        """The line of the file for each job; in a JSON document its request, counted from 1."""

    @property
    def notes(self) -> Sequence[str]:
        """What reading left out or had to assume, one sentence each."""

    @property
    def measured(self) -> Measured: ...

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
decoder = json.JSONDecoder(parse_constant=_no_constant)
decode = decoder.decode


class Lines:
    """The lines of one file, with the place of the current one for errors.

    raw: the lines as bytes, each of at most MAX_LINE_BYTES + 1 bytes. Blank lines are skipped.
    `head` is the first line that is not blank; every way to read begins with it again.
    file: the path of the file if it is on disk and not packed.
    element: what of a JSON document is being read, such as "[3].in"; empty for a file of lines.
    """

    def __init__(self, path: str, raw: Iterable[bytes], file: str | None = None) -> None:
        self.path = path
        self.file = file
        self.number = 0
        self.element = ""
        self._raw = iter(raw)
        for line in self._raw:
            self.number += 1
            if line.strip():
                self.head = line
                break
        else:
            self.number = 1
            self.wrong("a trace", "an empty file", "give a file with one JSON object a line")
        self._first_line = self.number

    @cached_property
    def first(self) -> Record:
        """The first object of a file with an object on each line."""
        self.number = self._first_line
        return self._object(self.head)

    def __iter__(self) -> Iterator[Record]:
        """The JSON objects of a file with one on each line."""
        yield self.first
        for line in self._raw:
            self.number += 1
            if line.strip():
                yield self._object(line)

    def texts(self) -> Iterator[str]:
        """The lines of a file of text, without their ends."""
        self.number = self._first_line
        yield self._text(self.head).rstrip("\r\n")
        for line in self._raw:
            self.number += 1
            if line.strip():
                yield self._text(line).rstrip("\r\n")

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the file from `head` on. `number` is the line of the last piece."""
        self.number = self._first_line
        yield self.head.removeprefix(_BYTE_ORDER_MARK)
        for line in self._raw:
            self.number += line.endswith(b"\n")
            yield line

    def beginning(self, most_bytes: int) -> bytes:
        """The first lines, about as many bytes as that. They are read again afterwards."""
        ahead: list[bytes] = []
        count = len(self.head)
        while count < most_bytes and (line := next(self._raw, b"")):
            ahead.append(line)
            count += len(line)
        self._raw = chain(ahead, self._raw)
        return b"".join((self.head, *ahead))

    def wrong(self, expected: str, found: str, do: str) -> NoReturn:
        place = f" {self.element}" if self.element else f"{self.number}"
        raise CallerError(f"{self.path}:{place}: expected {expected}, found {found}; {do}")

    def wrong_field(self, record: Record, field: str, expected: str, do: str = "") -> NoReturn:
        value = record.get(field, _MISSING)
        self.wrong(f"{field}: {expected}", show(value), do or "correct the field")

    def _text(self, line: bytes) -> str:
        if len(line) > MAX_LINE_BYTES:
            self.wrong(
                f"lines of at most {MAX_LINE_BYTES} bytes",
                "a longer one",
                "split the request" if self.number > 1 else NO_TRACE,
            )
        try:
            return line.removeprefix(_BYTE_ORDER_MARK).decode("utf-8")
        except UnicodeDecodeError as error:
            self.wrong("UTF-8 text", f"byte {line[error.start]:#04x}", "convert the file")

    def _object(self, line: bytes) -> Record:
        text = self._text(line)
        try:
            record = decode(text)
        except (ValueError, RecursionError) as error:
            reason = str(error).partition(": line ")[0].partition(";")[0]
            self.wrong("a JSON object", f"{shorten(text.strip())} ({reason})", self._one_object())
        if type(record) is not dict:
            self.wrong("a JSON object", show(record), self._one_object())
        return record

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


def text(lines: Lines, record: Record, field: str) -> str:
    """A field that must be text of a bounded length."""
    value = record.get(field)
    if type(value) is not str or len(value) > MOST_NAME:
        lines.wrong_field(record, field, f"text of at most {MOST_NAME} characters")
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        lines.wrong_field(record, field, "text without lone surrogates")
    return str(value)


def inner(lines: Lines, record: Record, field: str) -> Record:
    """A field that must be an object."""
    value = record.get(field)
    if type(value) is not dict:
        lines.wrong_field(record, field, "an object")
    return value


def nanoseconds(lines: Lines, record: Record, field: str, unit_ns: int = NS_PER_MS) -> int:
    """A time, integer or fractional, in milliseconds or seconds, as an integer of nanoseconds."""
    value = record.get(field)
    most = MAX_TIME_MS * NS_PER_MS // unit_ns
    if type(value) is int and 0 <= value <= most:
        return value * unit_ns
    if type(value) is not float or not math.isfinite(value) or not 0 <= value <= most:
        unit = "milliseconds" if unit_ns == NS_PER_MS else "seconds"
        lines.wrong_field(record, field, f"{unit} from 0 to {most}")
    return round(value * unit_ns)


def check_count(lines: Lines, found: int, tokens: int, block_size: int, what: str) -> None:
    """Raises CallerError if a prompt has not one id for each block, the partial last included."""
    expected = -(-tokens // block_size)
    if found != expected:
        lines.wrong(
            f"{expected} {what} (input_length {tokens} / {block_size}, rounded up)",
            str(found),
            "correct the line, or give the size of the blocks with --block-size",
        )


def check_whole(lines: Lines, found: int, tokens: int, block_size: int, what: str) -> None:
    """Raises CallerError if there is not one id for each whole block."""
    expected = tokens // block_size
    if found != expected:
        lines.wrong(
            f"{expected} {what} ({tokens} tokens / {block_size}, rounded down)",
            str(found),
            "correct the request, or give the size of the blocks with --block-size",
        )


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


def blocks_of(tokens: array[int], size: int) -> array[int]:
    """The chained hashes of the whole blocks of these tokens. size: tokens of a block."""
    blocks = array("Q")
    digest = b""
    for start in range(0, len(tokens) - size + 1, size):
        part = tokens[start : start + size].tobytes()
        digest = hashlib.blake2b(digest + part, digest_size=8).digest()
        blocks.append(int.from_bytes(digest, "little"))
    return blocks


class Names:
    """The names that were seen, as short digests, so that a long name takes no more room."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def is_new(self, name: str) -> bool:
        digest = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=8).digest()
        before = len(self._seen)
        self._seen.add(digest)
        return len(self._seen) > before

    def check(self, lines: Lines, name: str, field: str) -> None:
        """Raises CallerError if the name was seen before."""
        if not self.is_new(name):
            lines.wrong(f"{field}s that differ", f"{show(name)} again", "remove the repetition")
