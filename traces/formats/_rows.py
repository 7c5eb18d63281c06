"""What a format sees of a file, and what it yields: the beginning, by which it recognises it, one
row a request, and what the whole file is like.

A format in traces/formats is a module with SUMMARY, SAMPLE, `recognises(head)` and
`rows(files, about)`. `rows` is a generator; it fills `about` before the first row that depends on
it. Reading the rows into columns (_blocks), and writing them as a native trace (_writing), is the
same for all formats. The native format has tokens instead of blocks and a reader of its own.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from shlex import quote
from typing import NamedTuple

from hicache.core.errors import CallerError, closest

from ._clock import UNITS
from .base import MAX_BLOCK_TOKENS, Lines, Measured

_LOOKED_AT = 1 << 16  # bytes
_MOST_COLUMNS = 200
_DEEPEST = 8
_WITHIN = "[]."  # after the name of a list
_STRING = re.compile(r'"(?:[^"\\]|\\.)*+"')
NEEDED = ("time", "input", "output")
ROLES = (*NEEDED, "session", "turn", "cached", "ttft", "id", "input_ids", "output_ids", "blocks")
_IN_PLACE = {"input": "input_ids", "output": "output_ids"}
# How a column that has a role is called, beside what no such column is called.
_GUESSES = {
    "time": (r"time|created|date|start|^ts$|_at$", r"end|elapsed|finish|first|updated|to_|latency"),
    "input_ids": (r"(input|prompt).*ids$", r"^$"),
    "output_ids": (r"(output|completion|answer).*ids$", r"^$"),
    "input": (r"prompt|input|context|request.?tok", r"cach|detail|cost|text|id|price|messages"),
    "output": (r"completion|output|generated|answer|response.?tok", r"detail|cost|text|id|reason"),
    "session": (r"session|conversation|thread|chat", r"completion|usage|time|count|type"),
    "cached": (r"cached|cache.?read", r"cost"),
}
GROWTHS = ("append", "replace")
SHARINGS = ("none", "most")


class Column(NamedTuple):
    """An expression over columns, of a role. unit: of its times, one of UNITS; empty for what the
    values say."""

    name: str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class LogOptions:
    """columns: as `parse_columns` reads them. rows: the path of the list of a document that has
    them. shared_prefix: tokens with which all prompts begin.
    growth: one of GROWTHS. sharing: one of SHARINGS instead of these two."""

    columns: str | None = None
    shared_prefix: int | None = None
    growth: str | None = None
    sharing: str | None = None
    rows: str | None = None

    @property
    def words(self) -> list[str]:
        """The options that were given, as on a command line."""
        given = {
            "--columns": self.columns,
            "--rows": self.rows,
            "--shared-prefix": self.shared_prefix,
            "--growth": self.growth,
            "--sharing": self.sharing,
        }
        pairs = ((flag, str(value)) for flag, value in given.items() if value is not None)
        return [word for pair in pairs for word in pair]


def parse_columns(text: str, needed: Sequence[str] = NEEDED) -> Mapping[str, Column]:
    """The columns of `time=ts:ms,input=a + b,...` by role. A comma in parentheses or quotes belongs
    to its expression. Raises ValueError that says what was expected and found."""
    found: dict[str, Column] = {}
    for part in _PART.findall(text):
        role, _, name = (piece.strip() for piece in part.partition("="))
        if role not in ROLES or not name:
            hint = closest(role, ROLES) if role not in ROLES else ""
            raise ValueError(
                f"expected {', '.join(ROLES)}, each with =COLUMN, found {part[:40]!a}{hint}"
            )
        if role in found:
            raise ValueError(f"expected each of {', '.join(ROLES)} once, found {role} twice")
        bare, _, unit = name.rpartition(":")
        is_unit = role in ("time", "ttft") and bare and unit in UNITS
        if role == "ttft" and not is_unit:
            raise ValueError(f"expected a unit, such as ttft={name[:40]}:s, found none")
        found[role] = Column(bare, unit) if is_unit else Column(name)
    lacking = [role for role in needed if not {role, _IN_PLACE.get(role)} & {*found}]
    if lacking:
        raise ValueError(f"expected {', '.join(NEEDED)}, found no {lacking[0]}")
    if "turn" in found and "session" not in found:
        raise ValueError("expected session beside turn, found turn alone")
    if "output_ids" in found and "input_ids" not in found:
        raise ValueError("expected input_ids beside output_ids, found output_ids alone")
    return found


_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|\([^()]*(?:\([^()]*\)[^()]*)*\)|[^,])+""")


def guess(names: Sequence[str]) -> str:
    """The options that probably name the columns of a log; empty if some are not to be guessed.
    names: as of `Head.names`."""
    found: dict[str, str] = {}
    for role, (like, unlike) in _GUESSES.items():
        for name in names:
            column = name.rpartition(_WITHIN)[2]
            last = column if role == "session" else column.rpartition(".")[2]
            fits = re.search(like, column, re.I) and not re.search(unlike, last, re.I)
            if fits and name not in found.values() and name.isprintable() and len(name) < 80:
                found[role] = name
                break
    for role, ids in _IN_PLACE.items():
        if {role, ids} <= found.keys():
            del found[role]
    if any(not {role, _IN_PLACE.get(role)} & found.keys() for role in NEEDED):
        return ""
    within = found["time"].rpartition(_WITHIN)[0]
    unit = re.search(r"_(s|ms|us|ns)$", found["time"])
    found["time"] += f":{unit[1]}" if unit else ""
    columns = ",".join(f"{role}={name.rpartition(_WITHIN)[2]}" for role, name in found.items())
    return (f"--rows {quote(within)} " if within else "") + f"--columns {quote(columns)}"


class Row(NamedTuple):
    """One request.

    arrival_ns  time of arrival; with `after` >= 0, the delay after the end of that request.
    blocks      ids of the blocks of the prompt (and output, if `about.knows_output`), the first
                ones or all of them. The last one may be partial if `about.partial`.
    scope       ids are the same block only within one scope: a file, a namespace.
    after       the number of the request that must end first, or -1.
    session     the name of its session; None for that of the request before, or one of its own.
    start_ns    when it was recorded to start, if `about.sorts`.
    """

    arrival_ns: int
    input_length: int
    output_length: int
    blocks: Sequence[int] = ()
    scope: str = ""
    after: int = -1
    session: str | None = None
    priority: int = 0
    tenant: str = ""
    start_ns: int = 0


@dataclass
class About:
    """The options of the reader, and what a format says of its file.

    wanted_block_size, tokenizer: as given; 0 and None if not. block_size: tokens of a block, known
    at the last row at the latest. identity: False if there are lengths only. partial: whether a
    row may end with the id of a block that is not full. sorts: whether rows have to be put in the
    order of their starts. notes: how often something was left out or assumed, by its sentence.
    timed: whether the file says when requests arrive. measured: what a log has of it.
    log: what the user says of a log. assumed: of a log, what had to be, in sentences.
    settle: is called after the last row; raises CallerError for what the whole file does not allow.
    """

    wanted_block_size: int = 0
    tokenizer: str | None = None
    block_size: int = 0
    identity: bool = True
    knows_output: bool = False
    partial: bool = True
    sorts: bool = False
    notes: Counter[str] = field(default_factory=Counter)
    lines: Lines | None = None
    settle: Callable[[], None] = lambda: None
    log: LogOptions = field(default_factory=LogOptions)
    assumed: list[str] = field(default_factory=list)
    timed: bool = True
    measured: Measured = field(default_factory=Measured)

    def each(self, files: Iterable[Lines]) -> Iterator[Lines]:
        """The files one after another; `lines` is the current one."""
        for self.lines in files:
            yield self.lines

    def fixed(self, lines: Lines, block_size: int) -> None:
        """The file says its block size. Raises CallerError if the option says another one."""
        if not 1 <= block_size <= MAX_BLOCK_TOKENS:
            lines.wrong(
                f"blocks of 1 to {MAX_BLOCK_TOKENS} tokens", str(block_size), "correct the file"
            )
        if self.wanted_block_size not in (0, block_size):
            lines.wrong(
                f"blocks of {self.wanted_block_size} tokens (--block-size)",
                f"a file with blocks of {block_size}",
                "leave the option out",
            )
        if self.block_size not in (0, block_size):
            lines.wrong(
                f"blocks of {self.block_size} tokens, as before",
                f"blocks of {block_size}",
                "split the trace",
            )
        self.block_size = block_size

    def lengths_only(self) -> None:
        """The file says nothing of its prompts but their lengths. Raises CallerError if the option
        gives their blocks a size."""
        self.identity = False
        assert self.lines is not None
        self.no_blocks(self.lines)

    def no_blocks(self, lines: Lines) -> None:
        """Raises CallerError if the option gives a size to blocks that the file has not."""
        if self.wanted_block_size:
            raise CallerError(
                f"--block-size: expected a trace with ids of blocks, found none in {lines.path}; "
                "leave it out"
            )

    def sentences(self) -> tuple[str, ...]:
        """The notes, with their numbers in front, and what was assumed."""
        counted = (f"{count:,} {text}" for text, count in self.notes.items() if count)
        return (*counted, *self.assumed)


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
    elif isinstance(value, list) and value and isinstance(value[0], dict) and _WITHIN not in path:
        yield from _paths(value[0], f"{path}[]" if path else "")
    elif path:
        yield path


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
