"""Logs in columns: a user's own, or of a known tool; CSV, JSON or Parquet, a row a request.

A known tool is a `Log` in LOGS: which columns have which role, as `--columns` says it for a user's
own. Rows with ids of tokens or blocks say what prompts share; of others, times and lengths are
those of the columns, and the rest is assumed in words.

A row becomes segments of streams. The prompt of a request begins with those of the request before
it in its session, as far as `_Sharing` says, and goes on with a stream of its own; its answer is
one, too. Streams are numbered by row, so the same row has the same tokens however much of the file
is read. Rows are put in the order of their times, since services write a row when a request ends.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, NoReturn

import msgspec
import numpy as np

from hicache.core.errors import closest

from . import base
from ._clock import UNITS, Clock, duration_ns
from ._pages import Segment
from ._tables import PARQUET, Table
from .base import About, Format, Head, Lines, LogOptions, Measured, Row, blocks_of

NEEDED = ("time", "input", "output")
OPTIONAL = ("session", "cached", "ttft", "id")
ROLES = (*NEEDED, *OPTIONAL, "input_ids", "output_ids")
GROWTHS = ("append", "replace")
SHARINGS = ("none", "most")
_PREFIX = 0  # the stream that all prompts begin with
_EVERYBODY = -1  # the session of all requests, where most is shared and nothing names sessions
_MOST_SEGMENTS = 4096  # of a prompt
_BLOCK_SIZE = 16
_EMPTY = "requests without a prompt or an answer were left out; they failed."
_OTHERS = "rows of other types, without these columns, were passed over."
_REPEATED = "rows repeat the id of a row before; they are one request."
_AT_ONCE = "requests arrive at once: the file does not say when they started."
_PART = re.compile(r"""(?:"[^"]*"|'[^']*'|\([^()]*(?:\([^()]*\)[^()]*)*\)|[^,])+""")


class Column(NamedTuple):
    """An expression over columns, of a role. unit: of its times, one of UNITS; empty for what the
    values say."""

    name: str
    unit: str = ""


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
    lacking = [role for role in needed if not {role, f"{role}_ids"} & {*found}]
    if lacking:
        raise ValueError(f"expected {', '.join(NEEDED)}, found no {lacking[0]}")
    if "output_ids" in found and "input_ids" not in found:
        raise ValueError("expected input_ids beside output_ids, found output_ids alone")
    return found


@dataclass(frozen=True)
class Log:
    """A known log. names: of the fields in a file's head by which it is recognised. columns: as in
    --columns. optional: roles that only files with such a field have. zipped: columns are lists."""

    summary: str
    names: frozenset[str]
    columns: str
    optional: Mapping[str, str] = field(default_factory=dict)
    zipped: bool = False

    def recognises(self, head: Head) -> bool:
        if not head.columns and any("." in name for name in self.names):
            return head.line.startswith("{") and all(_has(head, name) for name in self.names)
        return self.names <= {*head.columns, *head.keys} and not (
            self.zipped and head.line.startswith("[")
        )

    def chosen(self, head: Head) -> Mapping[str, Column]:
        """The columns of a file that begins so."""
        found = parse_columns(self.columns, ())
        return {
            role: one
            for role, one in found.items()
            if role not in self.optional or _has(head, self.optional[role])
        }


def _has(head: Head, name: str) -> bool:
    """Whether a file has the field; within others, after a dot."""
    return name in head.columns or f'"{name.rpartition(".")[2]}"' in head.text


_OWN = Log(
    "a log of your own, CSV, JSON or Parquet: say its columns with --columns",
    frozenset(NEEDED),
    ",".join(f"{role}={role}" for role in ROLES if role != "ttft"),
    {role: role for role in ROLES if role not in NEEDED},
)
_USAGE = "message.usage."
LOGS = {
    "azure": Log(
        "Azure LLM inference CSV: TIMESTAMP, ContextTokens, GeneratedTokens; lengths only",
        frozenset({"TIMESTAMP", "ContextTokens", "GeneratedTokens"}),
        "time=TIMESTAMP,input=ContextTokens,output=GeneratedTokens",
    ),
    "burstgpt": Log(
        "BurstGPT CSV: Timestamp (s), Request tokens, Response tokens, Session ID",
        frozenset({"Timestamp", "Request tokens", "Response tokens"}),
        "time=Timestamp:s,input=Request tokens,output=Response tokens,session=Session ID",
        {"session": "Session ID"},
    ),
    "splitwise": Log(
        "SplitwiseSim CSV: arrival_timestamp (s), prompt_size, token_size; lengths only",
        frozenset({"arrival_timestamp", "prompt_size", "token_size"}),
        "time=arrival_timestamp:s,input=prompt_size,output=token_size",
    ),
    "openai": Log(
        "responses of the OpenAI API, one a line: created (s), usage; lengths only",
        frozenset({"object", "created", "usage"}),
        "time=created:s,input=usage.prompt_tokens,output=usage.completion_tokens,"
        "cached=usage.prompt_tokens_details.cached_tokens",
        {"cached": "usage.prompt_tokens_details.cached_tokens"},
    ),
    "serving-benchmark": Log(
        "results of vLLM's and SGLang's serving benchmarks: input_lens, output_lens; lengths only",
        frozenset({"input_lens", "output_lens"}),
        "time=start_times:s,input=input_lens,output=output_lens,ttft=ttfts:s",
        {"time": "start_times", "ttft": "ttfts"},
        zipped=True,
    ),
    "transcript": Log(
        "transcripts of a coding agent: lines of several types, with sessionId and message.usage",
        frozenset({"sessionId", f"{_USAGE}cache_read_input_tokens"}),
        f"time=timestamp,input={_USAGE}input_tokens + coalesce({_USAGE}cache_creation_input_tokens,"
        f" 0) + coalesce({_USAGE}cache_read_input_tokens, 0),output={_USAGE}output_tokens,"
        f"session=sessionId,cached={_USAGE}cache_read_input_tokens,id=requestId",
        {"id": "requestId"},
    ),
    "log": _OWN,
}


def _recognises(log: Log, head: Head) -> bool:
    return log.recognises(head) or (log is _OWN and head.line.startswith(PARQUET.decode()))


def _rows(log: Log, files: Iterable[Lines], about: About) -> Iterator[Row]:
    """The rows in order of time."""
    lines, said = next(about.each(files)), about.log
    columns = parse_columns(said.columns) if said.columns else log.chosen(Head(lines))
    if "input_ids" in columns:
        about.block_size = about.wanted_block_size or _BLOCK_SIZE
        about.partial, about.knows_output = False, "output_ids" in columns
    else:
        about.segments = {said.shared_prefix, said.sharing} != {None} or "session" in columns
        about.without_blocks(lines, identity=about.segments)
    table = _Columns(lines, about, columns)
    table.read(Table(lines, {r: c.name for r, c in columns.items()}, said.rows or "", log.zipped))
    yield from table.segments() if about.segments else table.blocks()


class _Columns:
    """The rows of a log in columns, in the order of the file."""

    def __init__(self, lines: Lines, about: About, columns: Mapping[str, Column]) -> None:
        self._file, self._about, self._columns = lines, about, columns
        self._rows, self._times, self._inputs = array("q"), array("q"), array("q")
        self._outputs, self._sessions = array("q"), array("q")
        self._blocks: list[Sequence[int]] = []

    def read(self, table: Table) -> None:
        """Fills the columns. Raises CallerError with the row."""
        about, columns = self._about, self._columns
        time = columns.get("time")
        clock = Clock(time.name, time.unit) if time else None
        sessions: dict[str, int] = {}
        ids: dict[str, int] = {}
        seen: set[str] = set()
        roles, cached, firsts_ns = [*columns], 0, array("q")
        tokens = [one for one in roles if one not in ("time", *OPTIONAL)]
        count = -1
        for count, values in enumerate(table.rows()):
            row = {role: (value or "").strip() for role, value in zip(roles, values, strict=True)}
            seen.update(role for role, value in row.items() if value)
            if not any(row[role] for role in tokens):
                about.notes[_OTHERS] += 1
                continue
            prompt, output, blocks = self._tokens(row)
            if not prompt or not output:
                about.notes[_EMPTY] += 1
                continue
            time_ns = clock.ns(self._file, row["time"]) if clock else 0
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
            self._rows.append(count + 1)
            self._times.append(time_ns)
            self._inputs.append(prompt)
            self._outputs.append(output)
            self._blocks.append(blocks)
            if len(self._rows) == about.limit:
                break
        if not self._rows:
            unseen = [role for role in roles if role not in seen and role not in OPTIONAL]
            if unseen and count >= 0:
                table.missing(columns[unseen[0]].name)
            self._file.element, self._file.number = "", 1
            self._file.wrong("a request", "none", "give a log with a row for each request")
        about.measured = Measured(
            cached if "cached" in columns else None,
            sorted(firsts_ns)[(len(firsts_ns) - 1) // 2] if firsts_ns else None,
        )

    def _tokens(self, row: Mapping[str, str]) -> tuple[int, int, Sequence[int]]:
        """The tokens of a prompt and an answer, 0 if there are none, and the ids of blocks."""
        most, size = base.MAX_REQUEST_TOKENS, self._about.block_size
        tokens, lengths = array("q"), []
        for role in ("input", "output"):
            if f"{role}_ids" in row:
                ids = self._list(row, f"{role}_ids")
                try:
                    tokens.extend(ids)
                except OverflowError:
                    self._wrong(f"{role}_ids", "integers of at most 63 bits", row[f"{role}_ids"])
                lengths.append(len(ids))
            else:
                lengths.append(self._whole(row, role, most))
        prompt, output = lengths
        if prompt + output > most:
            found = str(prompt + output)
            self._file.wrong(f"at most {most} tokens in a request", found, "correct the row")
        return prompt, output, blocks_of(tokens, size) if tokens else ()

    def _list(self, row: Mapping[str, str], role: str) -> list[int]:
        try:
            return msgspec.json.decode(row[role] or "[]", type=list[int])
        except (ValueError, RecursionError):
            self._wrong(role, "a list of integers", row[role])

    def _whole(self, row: Mapping[str, str], role: str, most: int) -> int:
        """An integer, however it is written; 0 if there is none."""
        text = row[role]
        whole, _, fraction = text.partition(".")
        if text and (len(text) > 20 or not whole.isascii() or not whole.isdigit()):
            self._wrong(role, f"an integer from 0 to {most}", text)
        if fraction.strip("0") or int(whole or 0) > most:
            self._wrong(role, f"an integer from 0 to {most}", text)
        return int(whole or 0)

    def _duration_ns(self, text: str) -> int:
        try:
            return duration_ns(text, self._columns["ttft"].unit)
        except ValueError:
            self._wrong("ttft", "a time of 0 or more", text)

    def _wrong(self, role: str, expected: str, text: str) -> NoReturn:
        found = base.shorten(text) or "nothing"
        self._file.wrong(f"{self._columns[role].name}: {expected}", found, "correct the row")

    def _ordered(self) -> list[int]:
        """The places of the rows in order of time, which counts from the first one afterwards."""
        order: list[int] = np.argsort(np.asarray(self._times), kind="stable").tolist()
        np.asarray(self._times)[:] -= self._times[order[0]]
        return order

    def blocks(self) -> Iterator[Row]:
        for place in self._ordered():
            self._file.number = self._rows[place]
            self._file.element = f"row {self._rows[place]}"
            lengths = self._inputs[place], self._outputs[place]
            session = str(self._sessions[place]) if "session" in self._columns else None
            yield Row(self._times[place], *lengths, self._blocks[place], session=session)

    def segments(self) -> Iterator[Row]:
        sharing = _Sharing(self._about.log, "session" in self._columns)
        order = self._ordered()
        last = {self._sessions[place]: place for place in order}
        for place in order:
            length, output = self._inputs[place], self._outputs[place]
            session, row = self._sessions[place], self._rows[place] - 1
            self._file.number, self._file.element = row + 1, f"row {row + 1}"
            segments = sharing.segments(session, row, length, output)
            if len(segments) > _MOST_SEGMENTS:
                most = f"conversations of at most {_MOST_SEGMENTS // 2:,} turns"
                self._file.wrong(most, "a longer one", "name a column of shorter sessions")
            if last[session] == place:
                sharing.forget(session)
            yield Row(self._times[place], length, output, segments, session=str(session))
        self._about.assumed.append(sharing.sentence())


class _Held(NamedTuple):
    """A request that the next one of its session may begin with. whole: tokens, with the answer."""

    segments: list[Segment]
    prompt: int
    whole: int


class _Sharing:
    """What each prompt begins with, as the options say; nothing else does. A prompt that is shorter
    than the shared prefix does not have it, so it shares nothing with those of its session that
    do."""

    def __init__(self, options: LogOptions, has_sessions: bool) -> None:
        self._options = options
        self._has_sessions = has_sessions
        self._prefix = 0 if options.sharing == "none" else options.shared_prefix or 0
        self._held: dict[tuple[int, bool], _Held] = {}
        self._shorter = self._later = self._answered = self._asked = 0

    def segments(self, session: int, row: int, length: int, output: int) -> list[Segment]:
        """Of a prompt, and then of its answer."""
        is_most = self._options.sharing == "most"
        if is_most and not self._has_sessions:
            session = _EVERYBODY
        has_prefix = length >= self._prefix
        self._shorter += not has_prefix
        held = self._held.get((session, has_prefix))
        common = 0 if held is None else self._common(held, length)
        before = [] if held is None else held.segments
        if has_prefix and self._prefix > common:
            before, common = [(_PREFIX, self._prefix)], self._prefix
        found, left = [], common
        for stream, tokens in before:
            if left:
                found.append((stream, min(tokens, left)))
                left -= found[-1][1]
        if length > common:
            found.append((2 * row + 1, length - common))
        found.append((2 * row + 2, output))
        if held is None or not is_most or length + output > held.whole:
            self._held[session, has_prefix] = _Held(found, length, length + output)
        return found

    def forget(self, session: int) -> None:
        """No request of the session follows."""
        for has_prefix in (False, True):
            self._held.pop((session, has_prefix), None)

    def _common(self, held: _Held, length: int) -> int:
        """The tokens that a prompt has in common with what its session holds."""
        if self._options.sharing:
            return min(length, held.whole) if self._options.sharing == "most" else 0
        self._later += 1
        if self._options.growth == "replace" or length < held.prompt:
            return 0
        if length >= held.whole:
            self._answered += 1
            return held.whole
        self._asked += 1
        return held.prompt

    def sentence(self) -> str:
        """What was assumed."""
        sharing = self._options.sharing
        if sharing:
            shared = {
                "none": "no two prompts begin alike",
                "most": "each prompt begins with as much of an earlier one as the lengths allow",
            }
            return f"Assumed: {shared[sharing]} (--sharing {sharing})."
        told = []
        if self._has_sessions and self._options.growth == "replace":
            told.append("a turn repeats nothing of the turns before it (--growth replace)")
        elif self._has_sessions:
            cut = self._later - self._answered - self._asked
            told.append(
                f"of {self._later:,} later turns, {self._answered:,} begin with the prompt and the "
                f"answer before, {self._asked:,} with the prompt alone, {cut:,} anew, as their "
                "lengths say"
            )
        alike = f"{self._prefix:,} tokens" if self._prefix else "nothing"
        but = f" but {self._shorter:,} that are shorter" if self._shorter else ""
        who = "sessions" if self._has_sessions and not self._prefix else "prompts"
        told.append(f"all {who}{but} share {alike}")
        return f"Assumed, since a log does not say it: {'; '.join(told)}. --sharing bounds it."


LOG_FORMATS = {
    name: Format(log.summary, partial(_recognises, log), partial(_rows, log), is_log=True)
    for name, log in LOGS.items()
}
