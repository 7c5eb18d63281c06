"""Sessions of coding agents as kv-cache-tester writes them: a JSON file for each, or a folder.

Fields of a file: id, block_size (64), hash_id_scope, requests. Of a request: t (seconds from the
start of the session), type, in, out (tokens), hash_ids, api_time, think_time (seconds). There is an
id for each *whole* block of the prompt, so its last tokens never hit. A request of the type
"subagent" holds the requests of an agent that the session began. With hash_id_scope "local" ids are
those of one file. Format: github.com/callanjfox/kv-cache-tester, traces.

How the times are read:

- All sessions begin at 0, since no file says when its session began.
- Other requests follow the one that ended last before them, of their agent or, where agents begin
  and end, of those around it; the delay is the time from its end (t + api_time) to their t. Without
  api_time the whole time from its t counts, so the recorded service is part of the delay.
- Times of a sub-agent count from its marker, or, if none is smaller than the marker's, from the
  start of the session, as in copies of these traces.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from . import base
from ._documents import whole
from ._rows import About, Head, Row
from .base import Lines, Record

SUMMARY = "sessions of coding agents (kv-cache-tester): a JSON file each, or their folder"
FOLDER = ".json"

SAMPLE = """\
{"id": "trace_0001", "models": ["m"], "block_size": 64, "hash_id_scope": "local", \
"tool_tokens": 100, "system_tokens": 20, "requests": [\
{"t": 0.0, "type": "n", "model": "m", "in": 580, "out": 20, \
"hash_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9], "stop": "tool_use", "api_time": 1.5, "think_time": 0.0}, \
{"t": 4.0, "type": "s", "model": "m", "in": 650, "out": 5, \
"hash_ids": [1, 2, 3, 4, 5, 6, 7, 8, 10, 11], "stop": "", "api_time": 1.0, "think_time": 2.5}]}
"""

_DEEPEST = 16
_NO_OUTPUT = "requests without output tokens are read with one (a prefill yields the first token)."
_SUBAGENT = "subagent"


class _Turn(NamedTuple):
    """A request. before: the place among the turns of the one that it follows, or -1."""

    start_ns: int
    end_ns: int
    before: int
    element: str
    record: Record


def recognises(head: Head) -> bool:
    return {"requests", "hash_id_scope"} <= head.keys or (
        {"id", "block_size", "requests"} <= head.keys
    )


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.sorts, about.partial = True, False
    total = 0
    for lines in about.each(files):
        document = whole(lines)
        about.fixed(lines, base.integer(lines, document, "block_size", 1, base.MAX_BLOCK_TOKENS))
        scope = lines.path
        if document.get("hash_id_scope", "local") == "global":
            scope = ""
        turns: list[_Turn] = []
        _flatten(lines, document, "", 0, -1, turns, 0)
        order = sorted(range(len(turns)), key=lambda place: turns[place].start_ns)
        number = {place: total + index for index, place in enumerate(order)}
        for place in order:
            turn = turns[place]
            lines.element, lines.number = turn.element, place + 1
            after = number.get(turn.before, -1)
            arrival = 0
            if after >= 0:
                arrival = max(0, turn.start_ns - turns[turn.before].end_ns)
            yield _row(lines, about, turn, Row(arrival, 0, 0, (), scope, after, lines.path))
        total += len(turns)
        lines.element = ""


def _row(lines: Lines, about: About, turn: _Turn, row: Row) -> Row:
    record = turn.record
    length = base.integer(lines, record, "in", 1, base.MAX_REQUEST_TOKENS)
    output = base.integer(lines, record, "out", 0, base.MAX_REQUEST_TOKENS)
    if not output:
        about.notes[_NO_OUTPUT] += 1
    ids = record.get("hash_ids")
    if type(ids) is not list:
        lines.wrong_field(record, "hash_ids", "a list of integers")
    base.check_whole(lines, len(ids), length, about.block_size, "hash_ids")
    return row._replace(
        input_length=length, output_length=output or 1, blocks=ids, start_ns=turn.start_ns
    )


def _flatten(
    lines: Lines,
    record: Record,
    path: str,
    offset_ns: int,
    before: int,
    turns: list[_Turn],
    depth: int,
) -> None:
    """Appends the requests of a session or a sub-agent. path: of `record` in the file. before: the
    turn during or after which it begins."""
    lines.element = path
    requests = record.get("requests")
    if type(requests) is not list:
        lines.wrong_field(record, "requests", "a list of requests")
    if depth > _DEEPEST:
        lines.wrong(f"agents within agents, {_DEEPEST} deep", "more", base.NO_TRACE)
    last_ns = offset_ns
    begun: list[int] = []  # the last turns of sub-agents since the last request
    for place, request in enumerate(requests):
        lines.element = element = f"{path}.requests[{place}]".removeprefix(".")
        if type(request) is not dict:
            lines.wrong("a request", base.show(request), base.NO_TRACE)
        start_ns = offset_ns + base.nanoseconds(lines, request, "t", base.NS_PER_S)
        if start_ns > base.MAX_TIME_MS * base.NS_PER_MS:
            most = base.MAX_TIME_MS // 1000
            lines.wrong(
                f"t: at most {most} seconds from the start of the session",
                f"{start_ns // base.NS_PER_S}",
                "correct the field",
            )
        base.not_backwards(lines, start_ns, last_ns)
        last_ns = start_ns
        if request.get("type") == _SUBAGENT:
            if request.get("requests") or "requests" not in request:
                start = _begin(lines, request, element, start_ns)
                _flatten(lines, request, element, start, before, turns, depth + 1)
                begun.append(len(turns) - 1)
            continue
        previous = _ended_last(turns, before, begun, start_ns)
        end_ns = start_ns
        if request.get("api_time") is not None:
            end_ns += base.nanoseconds(lines, request, "api_time", base.NS_PER_S)
        turns.append(_Turn(start_ns, end_ns, previous, element, request))
        before, begun = len(turns) - 1, []


def _begin(lines: Lines, marker: Record, element: str, marker_ns: int) -> int:
    """From when the times of a sub-agent count."""
    requests = marker.get("requests")
    first: Any = requests[0] if type(requests) is list and requests else None
    if type(first) is not dict:
        lines.wrong_field(marker, "requests", "a list of requests")
    lines.element = f"{element}.requests[0]"
    first_ns = base.nanoseconds(lines, first, "t", base.NS_PER_S)
    return marker_ns if first_ns < marker_ns else 0


def _ended_last(turns: Sequence[_Turn], before: int, begun: Sequence[int], start_ns: int) -> int:
    """The turn that a request follows: of the one before it, and of the sub-agents begun since,
    the one that ended last, but not after the request began."""
    ended = [place for place in begun if turns[place].end_ns <= start_ns]
    return max([before, *ended], key=lambda place: turns[place].end_ns if place >= 0 else -1)
