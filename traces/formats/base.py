"""What all trace formats share: what they yield, what the project sees of a trace, and how lines of
a file are read and refused.

A format is a `Format` in the dictionary of a file of this folder: a function that says whether a
file is one of its own, and a generator of `Row`s. A trace is untrusted input: the limits below end
a hostile or broken file with a one-line error before it fills the memory.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, NamedTuple, NoReturn, Protocol, TypeAlias, TypeVar

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import MOST_PRIORITY, Key, Pages
from sim.workload import Job, Workload

from ._jobs import Jobs

MAX_LINE_BYTES = 8 << 20
MAX_DOCUMENT_BYTES = 64 << 20
MAX_REQUEST_TOKENS = 1 << 24  # above every published context length; stream offsets fit 24 bits
MAX_REQUESTS = 1 << 31
MAX_BLOCK_TOKENS = 1 << 24
MAX_TIME_MS = 1 << 42  # 139 years; in nanoseconds still below 2**63
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000
MOST_NAME = 256  # characters of the name of a session, stream or request

NO_TRACE = "this is no trace that hicache reads: see docs/formats.md"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_SHOWN = 40
_LOOKED_AT = 1 << 16  # bytes
_MOST_COLUMNS, _DEEPEST = 200, 8
WITHIN = "[]."  # after the name of a list
_TOKEN = re.compile(r'"((?:[^"\\]|\\.)*+)"(\s*:)?|[{}[\]]')

# Fields of JSON. Times are in milliseconds or seconds.
Tokens: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_REQUEST_TOKENS)]
Name: TypeAlias = Annotated[str, Meta(max_length=MOST_NAME)]
Priority: TypeAlias = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
Time: TypeAlias = (
    Annotated[int, Meta(ge=0, le=MAX_TIME_MS)] | Annotated[float, Meta(ge=0, le=MAX_TIME_MS)]
)
BlockTokens: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_BLOCK_TOKENS)]
Record: TypeAlias = dict[str, Any]
T = TypeVar("T")


class Measured(NamedTuple):
    """What a log says was measured, over the requests read; None where it does not.

    cached_tokens: prompt tokens that the service found cached. ttft_p50_ns: the median time to
    first token.
    """

    cached_tokens: int | None = None
    ttft_p50_ns: int | None = None


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


class Trace:
    """A trace that was read and checked. It does not depend on a page size.

    identity: whether the file says which prompts begin alike; without it there are lengths only,
    and every prompt is unique. block_size: tokens of a block of the file's own ids, None for tokens
    and lengths. line_numbers: the line of each request; in a document its request, from 1. notes:
    what reading left out or had to assume, one sentence each. tenants: the tenant of each request,
    its place in `tenant_names`, which are in order of first use (one empty name if there are none).
    """

    identity = True
    block_size: int | None = None

    def __init__(
        self,
        path: str,
        name: str,
        jobs: Jobs,
        line_numbers: Sequence[int],
        tenants: NDArray[np.int32],
        tenant_names: Sequence[str],
        notes: Sequence[str] = (),
        measured: Measured | None = None,
    ) -> None:
        self.path, self.format, self.jobs = path, name, jobs
        self.line_numbers, self.notes = line_numbers, notes
        self.tenants, self.tenant_names = tenants, tenant_names
        self.measured = measured or Measured()

    def paged(self, page_size: int) -> Paged:
        """The trace in pages. Raises CallerError if the format does not support the page size."""
        raise NotImplementedError


def need_identity(trace: Trace, what: str) -> None:
    """Raises CallerError if the trace has lengths only. what: the figure that needs more."""
    if not trace.identity:
        raise CallerError(
            f"{trace.path}: {what}: expected a trace that says which prompts begin alike, found "
            f"lengths only ({trace.format}); use a trace with block ids or tokens, or replay this "
            "one with --mode timed"
        )


class Row(NamedTuple):
    """One request.

    arrival_ns  time of arrival; with `after` >= 0, the delay after the end of that request.
    ids         ids of the blocks of the prompt (and answer, if `about.knows_output`), the first
                ones or all of them; or, if `about.segments`, (stream, tokens) of the prompt and
                then of the answer.
    scope       ids are the same only within one scope: a file, a namespace.
    after       the number of the request that must end first, or -1.
    session     the name of its session; None for that of the request before, or one of its own.
    start_ns    when it was recorded to start, if `about.sorts`.
    """

    arrival_ns: int
    input_length: int
    output_length: int
    ids: Sequence[Any] = ()
    scope: str = ""
    after: int = -1
    session: str | None = None
    priority: int = 0
    tenant: str = ""
    start_ns: int = 0


@dataclass(frozen=True, slots=True)
class LogOptions:
    """What a user says of a log: see `logs`. sharing: none or most, instead of what `growth` and
    `shared_prefix` say."""

    columns: str | None = None
    shared_prefix: int | None = None
    growth: str | None = None
    sharing: str | None = None
    rows: str | None = None

    @property
    def words(self) -> list[str]:
        """The options that were given, as on a command line."""
        names = ("columns", "rows", "shared_prefix", "growth", "sharing")
        given = {name: getattr(self, name) for name in names}
        pairs = ((f"--{k.replace('_', '-')}", str(v)) for k, v in given.items() if v is not None)
        return [*chain.from_iterable(pairs)]


@dataclass
class About:
    """The options of the reader, and what a format says of its file before the first row that
    depends on it.

    wanted_block_size, tokenizer: as given; 0 and None if not. identity, knows_output: as of the
    trace. segments: whether rows are segments of streams. partial: whether a row may end with the
    id of a block that is not full. sorts: whether rows have to be put in the order of their starts.
    timed: whether the file says when requests arrive. limit: the most rows to read, 0 for all.
    notes: how often something was left out, by its sentence. assumed: of a log, what had to be.
    """

    wanted_block_size: int = 0
    tokenizer: str | None = None
    log: LogOptions = field(default_factory=LogOptions)
    block_size: int = 0
    identity: bool = True
    knows_output: bool = False
    segments: bool = False
    partial: bool = True
    sorts: bool = False
    timed: bool = True
    limit: int = 0
    sender: Any = None
    measured: Measured = field(default_factory=Measured)
    notes: Counter[str] = field(default_factory=Counter)
    assumed: list[str] = field(default_factory=list)
    lines: Lines | None = None

    def each(self, files: Iterable[Lines]) -> Iterator[Lines]:
        """The files one after another; `lines` is the current one."""
        for self.lines in files:
            yield self.lines

    def fixed(self, lines: Lines, block_size: int) -> None:
        """The file says its block size. Raises CallerError if the option, or a file before, says
        another one."""
        for known, where in ((self.wanted_block_size, "(--block-size)"), (self.block_size, "")):
            if known not in (0, block_size):
                lines.wrong(f"blocks of {known} tokens {where}".strip(), str(block_size), "leave "
                            "the option out" if where else "split the trace")  # fmt: skip
        self.block_size = block_size

    def without_blocks(self, lines: Lines, identity: bool = False) -> None:
        """The file has no blocks: lengths only, or tokens. Raises CallerError if the option gives
        blocks a size."""
        self.identity = identity
        if self.wanted_block_size:
            raise CallerError(
                f"--block-size: expected a trace with ids of blocks, found none in {lines.path}; "
                "leave it out"
            )

    def sentences(self) -> tuple[str, ...]:
        """The notes, with their numbers in front, and what was assumed."""
        counted = (f"{count:,} {text}" for text, count in self.notes.items() if count)
        return (*counted, *self.assumed)


@dataclass(frozen=True)
class Format:
    """summary: one line. recognises: whether a file that begins so is one. rows: the requests of
    the files; raises CallerError with the line. folder: how the names of its files end, where a
    folder of them is one trace. is_log: whether the options of a log belong to it."""

    summary: str
    recognises: Callable[[Head], bool]
    rows: Callable[[Iterable[Lines], About], Iterator[Row]]
    folder: str = ""
    is_log: bool = False


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

    def each(self) -> Iterator[bytes]:
        """The lines that are not blank."""
        self.number = self._first_line
        yield self._bounded(self.head.removeprefix(_BYTE_ORDER_MARK))
        for line in self._raw:
            self.number += 1
            if line.strip():
                yield self._bounded(line)

    def records(self, kind: type[T]) -> Iterator[T]:
        """The JSON objects of a file with one on each line, as this msgspec type."""
        decoder = msgspec.json.Decoder(kind)
        for line in self.each():
            yield self.decoded(decoder, line)

    def texts(self) -> Iterator[str]:
        """The lines of a file of text, without their ends."""
        for line in self.each():
            try:
                yield line.decode("utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                self.wrong("UTF-8 text", f"byte {line[error.start]:#04x}", "convert the file")

    def pieces(self) -> Iterator[bytes]:
        """The bytes of the file from `head` on. `number` is the line of the last piece."""
        self.number = self._first_line
        yield self.head.removeprefix(_BYTE_ORDER_MARK)
        for line in self._raw:
            self.number += line.endswith(b"\n")
            yield line

    def document(self, kind: type[T]) -> T:
        """The one JSON value of the file."""
        parts, left = [], MAX_DOCUMENT_BYTES
        for piece in self.pieces():
            parts.append(piece)
            left -= len(piece)
            if left < 0:
                self.wrong(
                    f"a JSON document of at most {MAX_DOCUMENT_BYTES} bytes", "more", NO_TRACE
                )
        return self.decoded(msgspec.json.Decoder(kind), b"".join(parts))

    def decoded(self, decoder: msgspec.json.Decoder[T], raw: bytes) -> T:
        """The value, as the type of the decoder. Raises CallerError with the line and field."""
        try:
            return decoder.decode(raw)
        except (ValueError, RecursionError) as error:
            expected, found, is_json = _fault(str(error), raw)
            do = "correct the field" if is_json else "write one JSON object a line"
            if not is_json and self.number == 1:
                do = f"{do}; {NO_TRACE}"
            self.wrong(expected, found, do)

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

    def _bounded(self, line: bytes) -> bytes:
        if len(line) > MAX_LINE_BYTES:
            do = "split the request" if self.number > 1 else NO_TRACE
            self.wrong(f"lines of at most {MAX_LINE_BYTES} bytes", "a longer one", do)
        return line


_WORDS = {  # of msgspec
    " | null": "",
    "int | float": "a number",
    "`int`": "an integer",
    "`str`": "text",
    "`bool`": "true or false",
    "`array`": "a list",
    "`object`": "an object",
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
    if message.startswith("Expected `object`") and not place:
        return "a JSON object", start, False
    if message.startswith(("Expected", "Invalid enum")):
        value: Any = None
        with suppress(ValueError, RecursionError, LookupError, TypeError):
            value = msgspec.json.decode(raw)
            for name, index in re.findall(r"([^.[\]]+)|\[(\d+)\]", place.replace("[...]", "")):
                value = value[name] if name and not index else value[int(index)]
        expected = message.partition(", got")[0].removeprefix("Expected ")
        if message.startswith("Invalid"):
            expected = "a value that docs/formats.md lists"
        for word, ours in _WORDS.items():
            expected = expected.replace(word, ours)
        return f"{where}{shorten(expected.replace('`', ''), 120)}", show(value), True
    reason = message.partition(" (byte")[0].removeprefix("JSON is malformed: ")
    return (
        "a JSON object",
        f"{shorten(raw[:200].decode(errors='replace').strip())} ({reason})",
        False,
    )


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
        """The names of the fields of the first JSON object, or of the first one of a list, as far
        as they are in the beginning; empty for other files."""
        depth, found = 0, set()
        outermost = {"{": 1, "[": 2}.get(self.line[:1], 0)
        for match in _TOKEN.finditer(self.text if outermost else ""):
            if match[1] is None:
                depth += 1 if match[0] in "{[" else -1
                if depth < outermost and match[0] not in "{[":
                    break
            elif depth == outermost and match[2]:
                found.add(match[1])
        return frozenset(found)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names in the first line of a CSV file; empty for other files."""
        if self.line.startswith(("{", "[")) or "," not in self.line:
            return ()
        with suppress(csv.Error):
            row = next(csv.reader([self.line]), [])
            return tuple(name.strip() for name in row[:_MOST_COLUMNS])
        return ()

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the columns of a CSV file or of its first object, within which a dot leads
        on; of a document, those of its first list of objects."""
        if self.columns:
            return self.columns
        with suppress(ValueError, RecursionError):
            first = json.loads(self.line if self.line.endswith("}") else self.text)
            return tuple(_paths(first, ""))
        return ()


def _paths(value: object, path: str) -> Iterator[str]:
    if isinstance(value, dict) and path.count(".") < _DEEPEST:
        for name, inner in value.items():
            yield from _paths(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and isinstance(value[0], dict) and WITHIN not in path:
        yield from _paths(value[0], f"{path}[]" if path else "")
    elif path:
        yield path


def _text(raw: bytes) -> str:
    return raw[:_LOOKED_AT].removeprefix(_BYTE_ORDER_MARK).decode("utf-8", "replace").strip()


def shorten(text: str, most: int = _SHOWN) -> str:
    """At most so many characters of untrusted text; those that are not printable become "?"."""
    clean = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return clean if len(text) <= most else clean[:most] + "..."


def show(value: object) -> str:
    """A value of a file as JSON writes it, shortened; "nothing" for none."""
    if value is None or value == "":
        return "nothing"
    if isinstance(value, int) and value.bit_length() > 128:
        return f"an integer of {value.bit_length()} bits"
    if isinstance(value, list | dict) and len(value) > _SHOWN:
        return f"{len(value)} {'elements' if isinstance(value, list) else 'fields'}"
    return shorten(json.dumps(value, default=str))


def nanoseconds(time: float, unit_ns: int = NS_PER_MS) -> int:
    """A `Time`, integer or fractional, as an integer of nanoseconds."""
    return time * unit_ns if isinstance(time, int) else round(time * unit_ns)


def milliseconds(time_ns: int) -> str:
    whole, rest = divmod(time_ns, NS_PER_MS)
    return f"{whole}.{rest:06d}".rstrip("0") if rest else str(whole)


def check_count(lines: Lines, found: int, tokens: int, size: int, whole: bool = False) -> None:
    """Raises CallerError if there is not one id for each block of the tokens: of the whole ones, or
    the partial last one, too."""
    expected = tokens // size if whole else -(-tokens // size)
    if found != expected:
        lines.wrong(
            f"{expected} ids of blocks ({tokens} tokens / {size}, rounded "
            f"{'down' if whole else 'up'})",
            str(found),
            "correct it, or give the size of the blocks with --block-size",
        )


def not_backwards(lines: Lines, arrival_ns: int, last_ns: int) -> None:
    """Raises CallerError if arrivals are not in order; a replay keeps the order of lines."""
    if arrival_ns < last_ns:
        lines.wrong(
            f"a timestamp of at least {milliseconds(last_ns)} (that of the request before)",
            milliseconds(arrival_ns),
            "sort the lines by timestamp",
        )


def blocks_of(tokens: array[int], size: int) -> array[int]:
    """The chained hashes of the whole blocks of these tokens. size: tokens of a block."""
    blocks = array("Q")
    digest = b""
    for start in range(0, len(tokens) - size + 1, size):
        part = tokens[start : start + size].tobytes()
        digest = hashlib.blake2b(digest + part, digest_size=8).digest()
        blocks.append(int.from_bytes(digest, "little"))
    return blocks
