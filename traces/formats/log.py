"""A log of the user's own: CSV, JSON objects or Parquet, with columns that --columns names.

A file whose columns have the names of their roles (time, input, output, session, turn) needs no
option. Times and lengths are those of the columns; the rest is assumed in words.

A row becomes segments of streams. The prompt of a request begins with those of the request before
it in its session, as far as `_Sharing` says, and goes on with a stream of its own; its answer is
one, too. Streams are numbered by row, so the same row has the same tokens however much of the file
is read. Rows are put in the order of their times, since services write a row when a request ends.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, TypeAlias

import numpy as np

from hicache.core.errors import CallerError

from . import _blocks, base, native
from ._clock import Clock, shown
from ._jobs import Chains, Jobs, Tenants
from ._rows import NEEDED, ROLES, About, Column, Head, LogOptions, Row, parse_columns
from ._segments import NativeTrace, Segment, Tokens
from ._tables import csv_rows, json_rows
from .base import Lines, Record, Trace

SUMMARY = "a log of your own, CSV, JSON lines or Parquet: say its columns with --columns"

SAMPLE = """\
time,input,output,session,turn
2026-11-23T10:00:00Z,600,40,a,1
2026-11-23T10:00:05Z,700,30,a,2
"""

_PARQUET = "traces.formats._parquet"
PARQUET = b"PAR1"
_PREFIX = 0  # the stream that all prompts begin with
_EVERYBODY = -1  # the session of all requests, where most is shared and nothing names sessions
_MOST_TURN = 1 << 53
_MOST_SEGMENTS = 4096  # of a prompt
_EMPTY = "requests without a prompt or an answer were left out; they failed."
_BOUNDS = "Replays with --sharing none and with --sharing most say how much depends on it."

Columns: TypeAlias = Callable[[Lines], str]


def recognises(head: Head) -> bool:
    return {*NEEDED} <= {*_names(head)} or head.line.startswith("PAR1")


def columns(lines: Lines) -> str:
    """The roles that are names of columns, as --columns names them."""
    found = {*NEEDED, *_names(Head(lines))}
    return ",".join(f"{role}={role}" for role in ROLES if role in found)


def _names(head: Head) -> Iterable[str]:
    return head.columns or head.keys


def read(files: Iterable[Lines], about: About, columns: Columns, name: str, limit: int) -> Trace:
    """The first `limit` rows in order of time. columns: tells those of the format, where the
    options name none. name: of the format. Raises CallerError with the row."""
    lines = next(about.each(files))
    log = _Log(lines, about, parse_columns(about.log.columns or columns(lines)), limit)
    if log.lengths_only:
        return _blocks.read(log.rows(), about, lines.path, name, limit)
    tokens, tenants, chains, jobs = Tokens(), Tenants(), Chains("q"), Jobs()
    firsts: dict[int, int] = {}
    for one in log.requests():
        tokens.add(one.segments, "", chains)
        tenants.add("")
        first = firsts.setdefault(one.session, len(jobs))
        jobs.add(one.arrival_ns, one.input_length, one.output_length, session=first)
    trace = NativeTrace(lines.path, jobs, log.line_numbers, tokens, tenants)
    trace.format, trace.notes = name, about.sentences()
    return trace


def texts(
    files: Iterable[Lines],
    about: About,
    columns: Columns,
    limit: int,
    made_by: Record,
    done: Callable[[int], None],
) -> Iterator[str]:
    """The lines of a native trace. done: takes the number of requests written so far."""
    lines = next(about.each(files))
    log = _Log(lines, about, parse_columns(about.log.columns or columns(lines)), limit)
    if log.lengths_only:
        yield from native.block_texts(log.rows(), about, made_by)
        return
    yield json.dumps({"format": native.NAME, "version": 1, "made_by": made_by}) + "\n"
    for count, one in enumerate(log.requests(), 1):
        *prompt, output = [[f"s{stream}", tokens] for stream, tokens in one.segments]
        rest = json.dumps({"session": str(one.session), "input": prompt, "output": output})
        yield f'{{"timestamp": {base.milliseconds(one.arrival_ns)}, {rest[1:]}\n'
        done(count)


class _Request(NamedTuple):
    """segments: of the prompt, then of the answer. session: its number."""

    segments: list[Segment]
    arrival_ns: int
    input_length: int
    output_length: int
    session: int


class _Log:
    """The rows of a log in columns, in the order of the file until `requests`."""

    def __init__(
        self, lines: Lines, about: About, columns: Mapping[str, Column], limit: int
    ) -> None:
        self._file = lines
        self._about = about
        self._columns = columns
        said = about.log
        self.lengths_only = (
            "session" not in columns and said.shared_prefix is None and said.sharing is None
        )
        if self.lengths_only:
            about.lengths_only()
        else:
            about.no_blocks(lines)
        self._rows, self._lines = array("q"), array("q")
        self._times, self._inputs, self._outputs = array("q"), array("q"), array("q")
        self._sessions = array("q")
        self._again = array("b")
        self._read(lines, limit)
        self._order = np.argsort(np.asarray(self._times), kind="stable").tolist()
        self.line_numbers = array("q", [self._lines[place] for place in self._order])

    def _read(self, lines: Lines, limit: int) -> None:
        roles = [*self._columns]
        names = [column.name for column in self._columns.values()]
        time = self._columns["time"]
        clock = Clock(time.name, time.unit)
        sessions = _Sessions(self._columns)
        for count, values in enumerate(_table(lines)(lines, names)):
            row = dict(zip(roles, values, strict=True))
            lengths = [
                _tokens(lines, self._columns[role], row[role]) for role in ("input", "output")
            ]
            if not all(lengths):
                self._about.notes[_EMPTY] += 1
                continue
            if sum(lengths) > base.MAX_REQUEST_TOKENS:
                lines.wrong(
                    f"at most {base.MAX_REQUEST_TOKENS} tokens in a request",
                    str(sum(lengths)),
                    "correct the row",
                )
            time_ns = clock.ns(lines, row["time"])
            session, is_again = sessions.add(lines, row, time_ns)
            self._rows.append(count)
            self._lines.append(lines.number)
            self._times.append(time_ns)
            self._inputs.append(lengths[0])
            self._outputs.append(lengths[1])
            self._sessions.append(session)
            self._again.append(is_again)
            if len(self._rows) == limit:
                break
        if not self._rows:
            lines.wrong("a request", "none", "give a log with a row for each request")

    def rows(self) -> Iterator[Row]:
        """The requests without their tokens, in order of time."""
        begin_ns = self._times[self._order[0]]
        for place in self._order:
            self._file.number = self._lines[place]
            yield Row(self._times[place] - begin_ns, self._inputs[place], self._outputs[place])

    def requests(self) -> Iterator[_Request]:
        """The requests in order of time. Then the notes of the reader are complete."""
        sharing = _Sharing(self._about.log, "session" in self._columns)
        begin_ns = self._times[self._order[0]]
        last = {self._sessions[place]: place for place in self._order}
        for place in self._order:
            length, output = self._inputs[place], self._outputs[place]
            session, row = self._sessions[place], self._rows[place]
            segments = sharing.segments(session, row, length, output, bool(self._again[place]))
            if len(segments) > _MOST_SEGMENTS:
                raise CallerError(
                    f"{self._file.path}:{self._lines[place]}: expected conversations of at most "
                    f"{_MOST_SEGMENTS // 2:,} turns, found a longer one; name a column of shorter "
                    "sessions"
                )
            if last[session] == place:
                sharing.forget(session)
            yield _Request(segments, self._times[place] - begin_ns, length, output, session)
        self._about.assumed.extend(sharing.sentences())


class _Sessions:
    """Numbers sessions, and checks that each goes on in order."""

    def __init__(self, columns: Mapping[str, Column]) -> None:
        self._columns = columns
        self._numbers: dict[object, int] = {}
        self._count = 0
        self._last: dict[int, tuple[int, int]] = {}  # (time, turn) of the last request

    def add(self, lines: Lines, row: Mapping[str, Any], time_ns: int) -> tuple[int, bool]:
        """The number of the row's session, and whether it repeats the turn before."""
        name = row.get("session")
        self._count += 1
        if name is None or name == "":
            return self._count - 1, False
        if type(name) not in (str, int) or len(str(name)) > base.MOST_NAME:
            self._wrong(lines, "session", f"text of at most {base.MOST_NAME} characters", name)
        number = self._numbers.setdefault(str(name), self._count - 1)
        turn = self._turn(lines, row["turn"]) if "turn" in row else -1
        if number not in self._last:
            self._last[number] = time_ns, turn
            return number, False
        last_ns, last_turn = self._last[number]
        whose = f"(session {shown(name)})"
        if time_ns < last_ns:
            lines.wrong(
                f"{self._columns['time'].name}: a time that does not go back {whose}",
                f"one {(last_ns - time_ns) / 1e9:,.3f} s before that of the row before",
                "sort the log by time",
            )
        if turn < last_turn:
            lines.wrong(
                f"{self._columns['turn'].name}: {last_turn} or more {whose}",
                str(turn),
                "sort the log by time, or leave out turn= if it is no number of the turn",
            )
        self._last[number] = time_ns, turn
        return number, 0 <= turn == last_turn

    def _turn(self, lines: Lines, value: Any) -> int:
        turn = _whole(value)
        if turn is None or not 0 <= turn <= _MOST_TURN:
            self._wrong(lines, "turn", f"an integer from 0 to {_MOST_TURN}", value)
        return turn

    def _wrong(self, lines: Lines, role: str, expected: str, value: Any) -> NoReturn:
        column = self._columns[role].name
        lines.wrong(f"{column}: {expected}", shown(value), "correct the row")


class _Held(NamedTuple):
    """A request that the next one of its session may begin with. whole: tokens, with the answer.
    turn: counts the turns of the session."""

    segments: list[Segment]
    prompt: int
    whole: int
    turn: int


class _Sharing:
    """What each prompt begins with, as the options say; nothing else does. A prompt that is shorter
    than the shared prefix does not have it, so it shares nothing with those of its session that
    do."""

    def __init__(self, options: LogOptions, has_sessions: bool) -> None:
        self._options = options
        self._has_sessions = has_sessions
        self._prefix = 0 if options.sharing == "none" else options.shared_prefix or 0
        self._held: dict[tuple[int, bool], _Held] = {}
        self._turns: dict[int, int] = {}
        self._shorter = 0
        self._later = self._answered = self._asked = self._repeated = 0

    def segments(
        self, session: int, row: int, length: int, output: int, is_again: bool
    ) -> list[Segment]:
        """Of a prompt, and then of its answer."""
        is_most = self._options.sharing == "most"
        if is_most and not self._has_sessions:
            session = _EVERYBODY
        has_prefix = length >= self._prefix
        self._shorter += not has_prefix
        turn = self._turns[session] = self._turns.get(session, 0) + (not is_again)
        held = self._held.get((session, has_prefix))
        common = 0 if held is None else self._common(held, length, held.turn == turn)
        before = [] if held is None else held.segments
        if has_prefix and self._prefix > common:
            before, common = [(_PREFIX, self._prefix)], self._prefix
        found = _first(before, common)
        if length > common:
            found.append((2 * row + 1, length - common))
        found.append((2 * row + 2, output))
        if held is None or not is_most or length + output > held.whole:
            self._held[session, has_prefix] = _Held(found, length, length + output, turn)
        return found

    def forget(self, session: int) -> None:
        """No request of the session follows."""
        self._turns.pop(session, None)
        for has_prefix in (False, True):
            self._held.pop((session, has_prefix), None)

    def _common(self, held: _Held, length: int, is_again: bool) -> int:
        """The tokens that a prompt has in common with what its session holds."""
        sharing = self._options.sharing
        if sharing:
            return min(length, held.whole) if sharing == "most" else 0
        self._later += 1
        if is_again:
            self._repeated += 1
            return min(length, held.prompt)
        if self._options.growth == "replace":
            return 0
        if length >= held.whole:
            self._answered += 1
            return held.whole
        if length >= held.prompt:
            self._asked += 1
            return held.prompt
        return 0

    def sentences(self) -> Iterator[str]:
        """What was assumed."""
        if self._options.sharing == "none":
            yield "Assumed: no two prompts begin alike (--sharing none)."
            return
        if self._options.sharing == "most":
            where = "its session" if self._has_sessions else "any prompt before it"
            yield (
                f"Assumed: each prompt begins with as much of {where} as the lengths allow "
                "(--sharing most)."
            )
            return
        yield f"Assumed, since a log does not say it: {'; '.join(self._assumed())}. {_BOUNDS}"

    def _assumed(self) -> Iterator[str]:
        if self._has_sessions and self._options.growth == "replace":
            yield "a turn repeats nothing of the turns before it (--growth replace)"
        elif self._has_sessions:
            cut = self._later - self._answered - self._asked - self._repeated
            yield (
                "a later turn begins with the prompt and the answer before "
                f"({self._answered:,} of {self._later:,}), with the prompt alone if it is too "
                f"short for that ({self._asked:,}), and anew if it is shorter still ({cut:,})"
            )
        if self._repeated:
            yield f"the same turn again repeats its prompt ({self._repeated:,})"
        if self._prefix:
            but = f" but {self._shorter:,} that are shorter" if self._shorter else ""
            yield f"all prompts{but} begin with the same {self._prefix:,} tokens"
        else:
            yield f"{'sessions' if self._has_sessions else 'prompts'} share nothing"


def _first(segments: list[Segment], tokens: int) -> list[Segment]:
    """The segments of the first tokens."""
    found: list[Segment] = []
    for segment in segments:
        if not tokens:
            break
        found.append(segment if segment[1] <= tokens else (segment[0], tokens))
        tokens -= found[-1][1]
    return found


def _table(lines: Lines) -> Callable[[Lines, Sequence[str]], Iterator[Sequence[Any]]]:
    """The reader of this kind of file."""
    head = lines.head.lstrip()
    if not head.startswith(PARQUET):
        return json_rows if head.startswith((b"{", b"[")) else csv_rows
    _need_file(lines)
    try:
        return import_module(_PARQUET).rows  # type: ignore[no-any-return]
    except ImportError:
        raise CallerError(
            f"{lines.path}: expected the library pyarrow to read Parquet, found none; "
            "pip install 'hicache[logs]'"
        ) from None


def _need_file(lines: Lines) -> None:
    """Raises CallerError if the path does not name an unpacked file."""
    try:
        with open(lines.path, "rb") as file:
            is_plain = file.read(len(PARQUET)) == PARQUET
    except OSError:
        is_plain = False
    if not is_plain:
        raise CallerError(
            f"{lines.path}: expected the name of a Parquet file that is not packed, found standard "
            "input or a packed file; write it to a file"
        )


def _tokens(lines: Lines, column: Column, value: Any) -> int:
    """A number of tokens; 0 if there is none."""
    if value is None or value == "":
        return 0
    count = _whole(value)
    if count is None or not 0 <= count <= base.MAX_REQUEST_TOKENS:
        lines.wrong(
            f"{column.name}: an integer from 0 to {base.MAX_REQUEST_TOKENS}",
            shown(value),
            "correct the row",
        )
    return count


def _whole(value: Any) -> int | None:
    """A whole number, however it is written; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal | float):
        return int(value) if -1 < value < _MOST_TURN and value == int(value) else None
    if isinstance(value, str) and len(value) < 20:
        whole, _, fraction = value.partition(".")
        if whole.isascii() and whole.isdigit() and not fraction.strip("0"):
            return int(whole)
    return None
