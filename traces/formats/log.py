"""A log of the user's own, or of a known tool: CSV, JSON or Parquet, a row a request.

A file whose columns have the names of their roles (time, input, output, session, turn) needs no
option; those of known tools stand in _known. Rows with ids of tokens or blocks say what prompts
share; of others, times and lengths are those of the columns, and the rest is assumed in words.

A row becomes segments of streams. The prompt of a request begins with those of the request before
it in its session, as far as `_Sharing` says, and goes on with a stream of its own; its answer is
one, too. Streams are numbered by row, so the same row has the same tokens however much of the file
is read. Rows are put in the order of their times, since services write a row when a request ends.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple, NoReturn

import numpy as np

from hicache.core.errors import CallerError

from . import _blocks, base, native
from ._clock import UNITS, Clock, shown
from ._jobs import Chains, Jobs, Tenants
from ._rows import NEEDED, ROLES, About, Column, Head, LogOptions, Row, parse_columns
from ._segments import NativeTrace, Segment, Tokens
from ._tables import PARQUET, Table
from .base import Lines, Measured, Record, Trace, blocks_of

SUMMARY = "a log of your own, CSV, JSON or Parquet: say its columns with --columns"

SAMPLE = """\
time,input,output,session,turn
2026-11-23T10:00:00Z,600,40,a,1
2026-11-23T10:00:05Z,700,30,a,2
"""

_PREFIX = 0  # the stream that all prompts begin with
_EVERYBODY = -1  # the session of all requests, where most is shared and nothing names sessions
_MOST_TURN = 1 << 53
_MOST_SEGMENTS = 4096  # of a prompt
_BLOCK_SIZE = 16
_EMPTY = "requests without a prompt or an answer were left out; they failed."
_OTHERS = "rows of other types, without these columns, were passed over."
_REPEATED = "rows repeat the id of a row before; they are one request."
_AT_ONCE = "requests arrive at once: the file does not say when they started."
_OPTIONAL = ("id", "cached", "ttft", "turn", "session")
_BOUNDS = "Replays with --sharing none and with --sharing most say how much depends on it."


def recognises(head: Head) -> bool:
    return {*NEEDED} <= {*_names(head)} or head.line.startswith(PARQUET.decode())


def columns(lines: Lines) -> str:
    """The roles that are names of columns, as --columns names them."""
    found = {*NEEDED, *_names(Head(lines))}
    return ",".join(f"{role}={role}" for role in ROLES if role in found)


def _names(head: Head) -> Iterable[str]:
    return head.columns or head.keys


def read(files: Iterable[Lines], about: About, entry: Any, name: str, limit: int) -> Trace:
    """The first `limit` rows in order of time. entry: of the format; its `columns` are read where
    the options name none. Raises CallerError with the row."""
    lines = next(about.each(files))
    log = _Log(lines, about, entry, limit)
    if log.in_blocks:
        return _blocks.read(log.rows(), about, lines.path, name, limit)
    tokens, tenants, chains, jobs = Tokens(), Tenants(), Chains("q"), Jobs()
    firsts: dict[int, int] = {}
    for one in log.requests():
        tokens.add(one.segments, "", chains)
        tenants.add("")
        first = firsts.setdefault(one.session, len(jobs))
        jobs.add(one.arrival_ns, one.input_length, one.output_length, session=first)
    trace = NativeTrace(lines.path, jobs, log.line_numbers, tokens, tenants)
    trace.format, trace.notes, trace.measured = name, about.sentences(), about.measured
    return trace


def texts(
    files: Iterable[Lines],
    about: About,
    entry: Any,
    limit: int,
    made_by: Record,
    done: Callable[[int], None],
) -> Iterator[str]:
    """The lines of a native trace. done: takes the number of requests written so far."""
    lines = next(about.each(files))
    log = _Log(lines, about, entry, limit)
    if log.in_blocks:
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
    """The rows of a log in columns, in the order of the file until `rows` or `requests`.

    in_blocks: whether requests are ids of blocks, or lengths only.
    """

    def __init__(self, lines: Lines, about: About, entry: Any, limit: int) -> None:
        self._file = lines
        self._about = about
        said = about.log
        self._columns = columns = (
            parse_columns(said.columns) if said.columns else parse_columns(entry.columns(lines), ())
        )
        has_ids = not columns.keys().isdisjoint({"input_ids", "blocks"})
        self.in_blocks = has_ids or (
            "session" not in columns and said.shared_prefix is None and said.sharing is None
        )
        if has_ids:
            about.block_size = about.wanted_block_size or _BLOCK_SIZE
            about.partial, about.knows_output = "blocks" in columns, "output_ids" in columns
            if "blocks" in columns and not about.wanted_block_size:
                raise CallerError("--block-size: expected it beside blocks= of --columns")
        elif self.in_blocks:
            about.lengths_only()
        else:
            about.no_blocks(lines)
        self._rows, self._times, self._inputs = array("q"), array("q"), array("q")
        self._outputs, self._sessions, self._turns = array("q"), array("q"), array("q")
        self._blocks: list[Sequence[int]] = []
        self._read(Table(lines, _expressions(columns), said.rows or "", _is_zipped(entry)), limit)
        order = np.argsort(np.asarray(self._times), kind="stable")
        self._order = order.tolist()
        self.line_numbers = array("q", [self._rows[place] for place in self._order])

    def _read(self, table: Table, limit: int) -> None:
        lines, about, columns = self._file, self._about, self._columns
        time = columns.get("time")
        clock = Clock(time.name, time.unit) if time else None
        sessions: dict[str, int] = {}
        ids: dict[str, int] = {}
        seen: set[str] = set()
        count, cached = -1, 0
        firsts_ns = array("q")
        roles = [*columns]
        for count, values in enumerate(table.rows()):
            row = {role: (value or "").strip() for role, value in zip(roles, values, strict=True)}
            seen.update(role for role, value in row.items() if value)
            needed = [role for role in roles if role in (*NEEDED, "input_ids", "output_ids")]
            if not any(row[role] for role in needed if role != "time"):
                about.notes[_OTHERS] += 1
                continue
            prompt, output, blocks = self._tokens(row)
            if not prompt or not output:
                about.notes[_EMPTY] += 1
                continue
            if prompt + output > base.MAX_REQUEST_TOKENS:
                most = base.MAX_REQUEST_TOKENS
                found = str(prompt + output)
                lines.wrong(f"at most {most} tokens in a request", found, "correct the row")
            time_ns = clock.ns(lines, row["time"]) if clock else 0
            about.notes[_AT_ONCE] += clock is None
            if row.get("id"):
                before = ids.setdefault(row["id"], len(self._rows))
                if before < len(self._rows):
                    about.notes[_REPEATED] += 1
                    self._outputs[before] = max(self._outputs[before], output)
                    continue
            if "cached" in row:
                cached += min(prompt, self._whole(row, "cached", base.MAX_REQUEST_TOKENS))
            if row.get("ttft"):
                firsts_ns.append(self._duration_ns(row["ttft"]))
            name = row.get("session", "")
            if len(name) > base.MOST_NAME:
                self._wrong("session", f"text of at most {base.MOST_NAME} characters", name)
            self._sessions.append(sessions.setdefault(name, count) if name else count)
            self._turns.append(self._whole(row, "turn", _MOST_TURN) if "turn" in row else -1)
            self._rows.append(count + 1)
            self._times.append(time_ns)
            self._inputs.append(prompt)
            self._outputs.append(output)
            self._blocks.append(blocks)
            if len(self._rows) == limit:
                break
        if not self._rows:
            unseen = [role for role in roles if role not in seen and role not in _OPTIONAL]
            if unseen and count >= 0:
                table.missing(columns[unseen[0]].name)
            lines.element, lines.number = "", 1
            lines.wrong("a request", "none", "give a log with a row for each request")

        about.measured = Measured(
            cached if "cached" in columns else None,
            sorted(firsts_ns)[(len(firsts_ns) - 1) // 2] if firsts_ns else None,
        )
        if "cached" in columns:
            total = sum(self._inputs)
            about.assumed.append(
                f"The log measured {cached:,} cached tokens of {total:,} in prompts "
                f"({cached / total:.1%})."
            )

    def _duration_ns(self, text: str) -> int:
        try:
            found = Decimal(text) * UNITS[self._columns["ttft"].unit]
        except InvalidOperation:
            found = Decimal(-1)
        if not 0 <= found <= base.MAX_TIME_MS * base.NS_PER_MS:
            self._wrong("ttft", "a time of 0 or more", text)
        return int(found)

    def _tokens(self, row: Mapping[str, str]) -> tuple[int, int, Sequence[int]]:
        """The tokens of a prompt and an answer, 0 if there are none, and the ids of blocks."""
        most, size = base.MAX_REQUEST_TOKENS, self._about.block_size
        prompt = array("q")
        lengths = {}
        for role in ("input", "output"):
            if f"{role}_ids" in row:
                ids = self._list(row, f"{role}_ids")
                try:
                    prompt.extend(ids)
                except (OverflowError, TypeError):
                    self._wrong(f"{role}_ids", "integers of at most 63 bits", row[f"{role}_ids"])
                lengths[role] = len(ids)
            else:
                lengths[role] = self._whole(row, role, most)
        blocks: Sequence[int] = blocks_of(prompt, size) if prompt else ()
        if "blocks" in row:
            blocks = self._list(row, "blocks")
            base.check_count(self._file, len(blocks), lengths["input"], size, "blocks")
        return lengths["input"], lengths["output"], blocks

    def _list(self, row: Mapping[str, str], role: str) -> list[int]:
        try:
            ids = json.loads(row[role] or "[]")
        except (ValueError, RecursionError):
            ids = None
        if type(ids) is not list or not {*map(type, ids)} <= {int}:
            self._wrong(role, "a list of integers", row[role])
        return ids

    def _whole(self, row: Mapping[str, str], role: str, most: int) -> int:
        """An integer, however it is written; 0 if there is none."""
        text = row[role]
        whole, _, fraction = text.partition(".")
        if text and (len(text) > 20 or not whole.isascii() or not whole.isdigit()):
            self._wrong(role, f"an integer from 0 to {most}", text)
        if fraction.strip("0") or int(whole or 0) > most:
            self._wrong(role, f"an integer from 0 to {most}", text)
        return int(whole or 0)

    def _wrong(self, role: str, expected: str, text: str) -> NoReturn:
        self._file.wrong(f"{self._columns[role].name}: {expected}", shown(text), "correct the row")

    def rows(self) -> Iterator[Row]:
        """The requests in order of time, with the ids of their blocks."""
        begin_ns = self._times[self._order[0]]
        for place in self._order:
            self._file.number = self._rows[place]
            self._file.element = f"row {self._rows[place]}"
            yield Row(
                self._times[place] - begin_ns,
                self._inputs[place],
                self._outputs[place],
                self._blocks[place],
                session=str(self._sessions[place]) if "session" in self._columns else None,
            )

    def requests(self) -> Iterator[_Request]:
        """The requests in order of time. Then the notes of the reader are complete."""
        sharing = _Sharing(self._about.log, "session" in self._columns)
        begin_ns = self._times[self._order[0]]
        last = {self._sessions[place]: place for place in self._order}
        turns: dict[int, int] = {}
        for place in self._order:
            length, output = self._inputs[place], self._outputs[place]
            session, row, turn = self._sessions[place], self._rows[place] - 1, self._turns[place]
            self._file.element = f"row {row + 1}"
            before = turns.get(session, -1)
            turns[session] = turn
            if turn < before:
                self._file.wrong(
                    f"{self._columns['turn'].name}: {before} or more in order of time",
                    str(turn),
                    "leave out turn= if it is no number of the turn",
                )
            segments = sharing.segments(session, row, length, output, 0 <= turn == before)
            if len(segments) > _MOST_SEGMENTS:
                self._file.wrong(
                    f"conversations of at most {_MOST_SEGMENTS // 2:,} turns",
                    "a longer one",
                    "name a column of shorter sessions",
                )
            if last[session] == place:
                sharing.forget(session)
            yield _Request(segments, self._times[place] - begin_ns, length, output, session)
        self._about.assumed.extend(sharing.sentences())


def _expressions(columns: Mapping[str, Column]) -> dict[str, str]:
    return {role: column.name for role, column in columns.items()}


def _is_zipped(entry: Any) -> bool:
    return bool(getattr(entry, "zipped", False))


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
