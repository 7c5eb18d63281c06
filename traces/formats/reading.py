"""What all formats share: the lines of a file, how they are refused, and rows that become a trace.

A trace is untrusted input: the limits below end a hostile or broken file with a one-line error
before it fills the memory.
"""

from __future__ import annotations

import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import chain, islice
from typing import Annotated, Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta

from hicache.core.errors import CallerError
from hicache.core.types import MOST_PRIORITY

from . import base
from .base import MAX_REQUEST_TOKENS, MAX_TIME_MS, NS_PER_MS, NS_PER_S, Jobs, Trace
from .pages import MOST, Blocks, BlockTrace, Segments, SegmentTrace

MAX_LINE_BYTES = 8 << 20
MAX_DOCUMENT_BYTES = 64 << 20
MOST_NAME = 256  # characters of the name of a session, stream or request
MOST_COLUMNS = 10_000
NO_TRACE = "this is no trace that hicache reads: see docs/formats.md"
WITHIN = "[]"  # after the name of a list
_SHOWN = 40
_LOOKED_AT = 1 << 16  # bytes
_DEEPEST = 8
_KEY = re.compile(r'"((?:[^"\\]|\\.)*+)"\s*:')

# Fields of JSON. Times are in milliseconds or seconds.
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_REQUEST_TOKENS)]
Name: TypeAlias = Annotated[str, Meta(max_length=MOST_NAME)]
Priority: TypeAlias = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
Time: TypeAlias = (
    Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] | Annotated[float, Meta(ge=0, le=MAX_TIME_MS)]
)
BlockTokens: TypeAlias = Annotated[int, Meta(ge=1, le=base.MAX_BLOCK_TOKENS)]
T = TypeVar("T")


class Row(NamedTuple):
    """One request. arrival_ns: None for a file without; with `after` >= 0, which is the number of
    the request that must end first, the delay after its end. ids: of the blocks of the prompt (and
    answer, if `about.knows_output`), the first ones or all of them; or, if `about.segments`,
    (stream, tokens) of the prompt and then of the answer. scope: ids are the same only within one:
    a file, a namespace. session: None for that of the request before, or one of its own. start_ns:
    when it was recorded to start, if `about.sorts`; None for its arrival."""

    arrival_ns: int | None
    input_length: int
    output_length: int
    ids: Sequence[Any] = ()
    scope: str = ""
    after: int = -1
    session: str | None = None
    priority: int = 0
    start_ns: int | None = None


TEXT_BLOCK = 16


@dataclass
class About:
    """The options of the reader (0 and None if not given), and what a format says of its file.

    wanted_block_size: None if the file or its format says it. columns, rows: of a log, see
    `tables`. limit: most requests to read. text_block: tokens of a block that the reader makes,
    where none is wanted. count: rows that were read. segments: whether rows are segments of
    streams. partial: whether a row may end with the id of a block that is not full. sorts: whether
    rows have to be put in the order of their starts. notes: how often something was left out, by
    its sentence. assumed: of a log, what had to be. seen: names, for the format. The rest is as of
    the trace.
    """

    wanted_block_size: int | None = None
    tokenizer: str | None = None
    columns: str | None = None
    rows: str | None = None
    limit: int = 0
    text_block: int = TEXT_BLOCK
    count: int = 0
    block_size: int = 0
    identity: bool = True
    knows_output: bool = False
    segments: bool = False
    partial: bool = True
    sorts: bool = False
    lines: Any = None  # the file that is read
    sender: Any = None
    measured: Any = None
    notes: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)

    def of_tokens(self) -> None:
        """The file has tokens, of which the reader makes the blocks."""
        self.block_size, self.partial = self.wanted_block_size or self.text_block, False

    def fixed(self, lines: Lines, size: int) -> None:
        """The file says its block size. Raises CallerError if something else was said before."""
        for known in (self.wanted_block_size, self.block_size):
            if known not in (None, 0, size):
                do = "leave --block-size out, or split the trace"
                lines.wrong(f"blocks of {known} tokens", str(size), do)
        self.block_size = size

    def without_blocks(self, lines: Lines) -> None:
        """The file has no blocks: lengths only, or tokens. Raises CallerError if the option gives
        blocks a size."""
        self.identity = self.segments
        if self.wanted_block_size:
            raise CallerError(
                f"--block-size: expected a trace with ids of blocks, found none in {lines.path}; "
                "leave it out"
            )


@dataclass(frozen=True)
class Format:
    """summary: one line. recognises: whether a file that begins so is one. rows: the requests of a
    file; raises CallerError with the line. folder: whether a folder of files is one trace.
    is_log: whether the options of a log belong to it."""

    summary: str
    recognises: Callable[[Head], bool]
    rows: Callable[[Lines, About], Iterator[Row]]
    folder: bool = False
    is_log: bool = False


def read(files: Iterable[Lines], chosen: Format, name: str, path: str, about: About) -> Trace:
    """The trace that the rows of these files are, or the first `about.limit` of them. Raises
    CallerError with the line."""
    columns = [array(code) for code in "qiiiiq"]
    numbers, begun = array("q"), array("q")
    blocks, tokens = Blocks(), Segments()
    sessions: dict[str, int] = {}
    timed, last_ns = True, 0

    def rows() -> Iterator[tuple[Lines, Row]]:
        for about.lines in files:
            for row in chosen.rows(about.lines, about):
                yield about.lines, row

    for lines, row in islice(rows(), about.limit or base.MAX_REQUESTS):
        arrival_ns = row.arrival_ns or 0
        if row.after < 0:
            timed = timed if about.count else row.arrival_ns is not None
            if timed != (row.arrival_ns is not None):
                lines.wrong("a timestamp in each request, or in none", "some", "give each a time")
            if not about.sorts and arrival_ns < last_ns:  # a replay keeps the order of lines
                most = f"a timestamp of at least {last_ns / NS_PER_MS:.15g}"
                result = f"{arrival_ns / NS_PER_MS:.15g}"
                lines.wrong(f"{most} (that of the request before)", result, "sort the lines by it")
            last_ns = arrival_ns
        if (length := row.input_length + row.output_length) > MAX_REQUEST_TOKENS:
            most = f"at most {MAX_REQUEST_TOKENS} tokens in a request"
            lines.wrong(most, str(length), "shorten it")
        try:
            if about.segments:
                tokens.add(row.ids, row.scope)
            else:
                _check_ids(lines, row.ids)
                blocks.add(row.ids, row.scope)
        except OverflowError:
            what = "segments" if about.segments else "blocks"
            lines.wrong(f"at most {MOST} different {what}", "more", "split the trace")
        session = about.count if about.segments else -1
        if row.session is not None:
            session = sessions.setdefault(row.session, about.count)
        elif row.after >= 0:
            session = columns[4][row.after]
        values = arrival_ns, row.input_length, row.output_length, row.after, session, row.priority
        for column, value in zip(columns, values, strict=True):
            column.append(value)
        numbers.append(lines.number)
        if about.sorts:
            begun.append(arrival_ns if row.start_ns is None else row.start_ns)
        about.count += 1
    if not about.count:
        about.lines.wrong("a request", "none", NO_TRACE)
    jobs = Jobs(*[np.asarray(column) for column in columns], about.sender, timed)  # type: ignore
    order = np.arange(len(jobs))
    if about.sorts:  # those that began at one instant stay as they were
        order = np.argsort(np.asarray(begun), kind="stable")
        jobs = jobs.reordered(order)
        jobs.arrivals_ns[jobs.afters < 0] -= jobs.arrivals_ns[jobs.afters < 0].min()
    counted = (f"{count:,} {text}" for text, count in about.notes.items() if count)
    message = (*counted, *about.assumed), about.measured
    places = np.asarray(numbers)[order].tolist()
    if about.segments:
        return SegmentTrace(tokens, path, name, jobs, places, *message)
    how = about.block_size, about.identity, about.knows_output, about.partial
    return BlockTrace(blocks, order, how, path, name, jobs, places, *message)


def _check_ids(lines: Lines, ids: Sequence[int]) -> None:
    """Raises CallerError for ids that no request may have."""
    if ids and not -(1 << 63) <= min(ids) <= max(ids) < 1 << 64:
        lines.wrong("hash_ids of at most 64 bits", show(max(ids, key=abs)), "shorten the hash")
    if len(set(ids)) != len(ids):
        wrong = next(value for value, count in Counter(ids).items() if count > 1)
        expected = "each of a request's hash_ids once (they are chained)"
        lines.wrong(expected, f"{wrong} twice", "chain each id with the one before it")


# -- lines


class Lines:
    """The lines of one file, with the place of the current one for errors; `head` is the first one
    that is not blank, with which every way to read begins again.

    raw: the lines, each of at most MAX_LINE_BYTES + 1 bytes. file: the path of the file if it is on
    disk and not packed. element: what of a document is being read, such as "[3].in".
    """

    def __init__(self, path: str, raw: Iterable[bytes], file: str | None = None) -> None:
        self.path, self.file, self.number, self.element = path, file, 1, ""
        self._raw = iter(raw)
        while (head := next(self._raw, b"")) and not head.strip():
            self.number += 1
        if not head:
            self.number = 1
            self.wrong("a trace", "an empty file", "give a file with one JSON object a line")
        self.head, self._first_line = head.removeprefix(b"\xef\xbb\xbf"), self.number

    def pieces(self) -> Iterator[bytes]:
        """The lines of the file from `head` on, each whole, or cut where it is too long."""
        self.number = self._first_line
        yield self.head
        for line in self._raw:
            self.number += 1
            yield line

    def each(self) -> Iterator[bytes]:
        """The lines that are not blank."""
        for line in self.pieces():
            if len(line) > MAX_LINE_BYTES:
                do = "split the request" if self.number > 1 else NO_TRACE
                self.wrong(f"lines of at most {MAX_LINE_BYTES} bytes", "a longer one", do)
            if line.strip():
                yield line

    def records(self, kind: type[T]) -> Iterator[T]:
        """The JSON objects of a file with one on each line, as this msgspec type."""
        decoder = msgspec.json.Decoder(kind)
        return (self.decoded(decoder, line) for line in self.each())

    def text(self, line: bytes) -> str:
        """A line of text, without its end."""
        try:
            return line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            self.wrong("UTF-8 text", f"byte {line[error.start]:#04x}", "convert the file")

    def document(self, kind: type[T]) -> T:
        """The one JSON value of the file."""
        raw = self.beginning(MAX_DOCUMENT_BYTES + 1)
        if len(raw) > MAX_DOCUMENT_BYTES:
            self.wrong(f"a JSON document of at most {MAX_DOCUMENT_BYTES} bytes", "more", NO_TRACE)
        return self.decoded(msgspec.json.Decoder(kind), raw)

    def decoded(self, decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
        """The value, as the type of the decoder. Raises CallerError with the line and field."""
        try:
            return decoder.decode(raw)
        except (ValueError, RecursionError) as error:
            expected, text, is_json = _fault(str(error), raw)
            do = "correct the field" if is_json else "write one JSON object a line"
            if not is_json and self.number == 1:
                do = f"{do}; {NO_TRACE}"
            self.wrong(expected, text, do)

    def moment_ns(self, column: str, text: str, unit: str = "") -> int:
        """As the function of that name. Raises CallerError with the line. column: for errors."""
        try:
            return moment_ns(text.strip(), unit)
        except ValueError:
            expected = f"a number of {unit}" if unit else "a date, or a number since 1970"
            do = f"correct it, or give the unit of the numbers, such as time={column}:s"
            self.wrong(f"{column}: {expected}", show(text), do)

    def beginning(self, most_bytes: int) -> bytes:
        """The first lines, about as many bytes as that. They are read again afterwards."""
        ahead: list[bytes] = []
        count = len(self.head)
        while count < most_bytes and (line := next(self._raw, b"")):
            ahead.append(line)
            count += len(line)
        self._raw = chain(ahead, self._raw)
        return b"".join((self.head, *ahead))

    def wrong(self, expected: str, text: str, do: str) -> NoReturn:
        place = f" {self.element}" if self.element else f"{self.number}"
        raise CallerError(f"{self.path}:{place}: expected {expected}, found {text}; {do}")


_WORDS = {  # of msgspec
    " | null": "",
    "int | float": "a number",
    "`int`": "an integer",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "an object",
    "`": "",
    "Expected ": "",
}


def _fault(message: str, raw: bytes) -> tuple[str, str, bool]:
    """(expected, found, whether the text is JSON) of an error of msgspec."""
    message, _, place = message.partition(" - at `")
    place = place.rstrip("`").removeprefix("$").removeprefix(".")
    where = f"{place}: " if place else ""
    if message.startswith("Object missing required field"):
        return f"{where}a field {message.split('`')[1]}", "none", True
    if message.startswith("Object contains unknown field"):
        return f"{where}no other fields", shorten(message.split("`", 1)[1][:-1]), True
    start = shorten(raw[:200].decode(errors="replace").strip())
    expected, is_type, _ = message.partition(", got")
    if not is_type and not message.startswith(("Expected", "Invalid enum")):
        reason = message.partition(" (byte")[0].removeprefix("JSON is malformed: ")
        return "a JSON object", f"{start} ({reason})", False
    if expected == "Expected `object`" and not place:
        return "a JSON object", start, False
    value: Any = None
    with suppress(ValueError, RecursionError, LookupError, TypeError):
        value = msgspec.json.decode(raw)
        for name, index in re.findall(r"([^.[\]]+)|\[(\d+)\]", place.replace("[...]", "")):
            value = value[name] if name and not index else value[int(index)]
    if message.startswith("Invalid"):
        expected = "a value that docs/formats.md lists"
    for word, ours in _WORDS.items():
        expected = expected.replace(word, ours)
    return f"{where}{shorten(expected, 120)}", show(value), True


class Head:
    """The beginning of a file. line, text: its first line, and lines. first: the first JSON value,
    if it is whole there. keys: the names of its fields, or of those of the first object of a list;
    of a longer value, all that are in its beginning. columns: of a CSV file. names: of the columns,
    or of the fields of the first object, within which a dot leads on."""

    def __init__(self, lines: Lines) -> None:
        self.line, self.text = _text(lines.head), _text(lines.beginning(_LOOKED_AT))
        self.first: Any = None
        self.columns: tuple[str, ...] = ()
        keys: Any = ()
        if self.line.startswith(("{", "[")):
            with suppress(ValueError, RecursionError):
                self.first = msgspec.json.decode(self.line if self.line[-1] == "}" else self.text)
            item = self.first[0] if isinstance(self.first, list) and self.first else self.first
            keys = item if isinstance(item, dict) else ()
            if item is None:
                keys = _KEY.findall(self.text)
        elif re.search("[,;\t]", self.line):
            with suppress(CallerError):
                self.columns = header(lines)[0]
        self.keys = frozenset(keys)
        self.names = self.columns or tuple(map(".".join, paths(self.first)))


def header(lines: Lines) -> tuple[tuple[str, ...], str]:
    """The names of the columns of a CSV file, and what is between them."""
    text = lines.text(lines.head)
    delimiter = max(",;\t", key=text.count)
    if text.count(delimiter) >= MOST_COLUMNS:
        lines.wrong(f"at most {MOST_COLUMNS:,} columns", "more", "leave out what is not read")
    return tuple(name.strip(' "') for name in text.split(delimiter)), delimiter


def paths(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The ways to the values within an object; through its first list of objects, see WITHIN."""
    if isinstance(value, dict) and len(path) < _DEEPEST:
        for name, inner in value.items():
            yield from paths(inner, (*path, name))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        if not any(name.endswith(WITHIN) for name in path):
            yield from paths(value[0], (*path[:-1], f"{path[-1]}{WITHIN}") if path else ())
    elif path:
        yield path


# -- values


def _text(raw: bytes) -> str:
    return raw[:_LOOKED_AT].decode("utf-8", "replace").strip()


def shorten(text: str, most: int = _SHOWN) -> str:
    """At most so many characters of untrusted text; those that are not printable become "?"."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return clean if len(text) <= most else clean[:most] + "..."


def show(value: object) -> str:
    """A value of a file as JSON writes it, shortened; "nothing" for none."""
    return "nothing" if value in (None, "") else shorten(json.dumps(value, default=str))


def nanoseconds(time: float, unit_ns: int = NS_PER_MS) -> int:
    """A `Time`, integer or fractional, as an integer of nanoseconds."""
    return time * unit_ns if isinstance(time, int) else round(time * unit_ns)


def check_count(lines: Lines, number: int, tokens: int, size: int, full: bool = False) -> None:
    """Raises CallerError if there is not one id for each block of the tokens: of the whole ones, or
    the partial last one, too."""
    expected = tokens // size if full else -(-tokens // size)
    if number != expected:
        do = "correct it, or give the size of the blocks with --block-size"
        lines.wrong(f"{expected} ids of blocks ({tokens} tokens / {size})", str(number), do)


def blocks_of(tokens: array[int], size: int) -> array[int]:
    """The chained hashes of the whole blocks of these tokens. size: tokens of a block."""
    blocks = array("Q")
    digest = b""
    for start in range(0, len(tokens) - size + 1, size):
        part = tokens[start : start + size].tobytes()
        digest = hashlib.blake2b(digest + part, digest_size=8).digest()
        blocks.append(int.from_bytes(digest, "little"))
    return blocks


# -- times

UNITS = {"s": NS_PER_S, "ms": NS_PER_MS, "us": 1000, "ns": 1}
_MOST_NS = MAX_TIME_MS * NS_PER_MS
_SINCE_1970_NS = 10**17  # from 1973 on
_NUMBER = re.compile(r"\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_DATE = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|UTC|[+-]\d\d(?::?\d\d)?))?",
    re.ASCII,
)


def moment_ns(text: str, unit: str = "") -> int:
    """Nanoseconds since 1970 of a date (UTC where it has no zone) or a number, which tells its unit
    by its size; or of a number in this unit. Raises ValueError for anything else."""
    least = 0
    if len(text) <= MOST_NAME and _NUMBER.fullmatch(text):
        number, least = Decimal(text), 0 if unit else _SINCE_1970_NS
        fits = (unit for unit in UNITS if _SINCE_1970_NS <= number * UNITS[unit] <= _MOST_NS)
        time_ns = int(number * UNITS[unit or next(fits, "s")])
    elif (match := _DATE.fullmatch(text)) and not unit:
        zone = "+00:00" if match[3] in (None, "Z", "UTC") else match[3]
        moment = datetime.fromisoformat(match[1] + zone) - datetime(1970, 1, 1, tzinfo=UTC)
        time_ns = round(moment.total_seconds()) * NS_PER_S + int((match[2] or "").ljust(9, "0"))
    else:
        raise ValueError
    if not least <= time_ns <= _MOST_NS:
        raise ValueError
    return time_ns
