"""Request traces of NVIDIA Dynamo (schema dynamo.request.trace.v1), plain or in gzip segments.

One record a line, in an envelope {"timestamp", "event"} or bare. Of records with the event_type
"request_end" the fields of `request` are read: request_id, request_received_ms, output_tokens, and
replay: trace_block_size, input_length, input_sequence_hashes; of `agent_context` the session.
Records of tools are passed over. A record is written when its request ends, so requests are put in
the order in which they were received. Times count from the first of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import base
from ._rows import About, Head, Row
from .base import Lines, Names, Record

SUMMARY = "Dynamo request traces (DYN_REQUEST_TRACE), a file or a folder of segments"
FOLDER = ".jsonl"
SCHEMA = "dynamo.request.trace.v1"

SAMPLE = """\
{"timestamp": 5, "event": {"schema": "dynamo.request.trace.v1", "event_type": "request_end", \
"event_time_unix_ms": 1700000000900, "agent_context": {"session_id": "s"}, "request": \
{"request_id": "a", "request_received_ms": 1700000000000, "output_tokens": 3, "replay": \
{"trace_block_size": 512, "input_length": 600, "input_sequence_hashes": [17, 18]}}}}
{"timestamp": 9, "event": {"schema": "dynamo.request.trace.v1", "event_type": "request_end", \
"event_time_unix_ms": 1700000002000, "request": \
{"request_id": "b", "request_received_ms": 1700000000500, "output_tokens": 1, "replay": \
{"trace_block_size": 512, "input_length": 700, \
"input_sequence_hashes": [17, 18446744073709551615]}}}}
"""

_TOOLS = "records of tools were passed over."
_NO_REPLAY = "requests without replay hashes were left out."
_NO_OUTPUT = "requests without output tokens were left out; they failed."


def recognises(head: Head) -> bool:
    return (head.keys == {"timestamp", "event"} or {"schema", "event_type"} <= head.keys) and (
        SCHEMA.rpartition(".")[0] in head.text
    )


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.sorts = True
    names = Names()
    for lines in about.each(files):
        for line in lines:
            record = line["event"] if type(line.get("event")) is dict else line
            if record.get("schema") != SCHEMA:
                lines.wrong_field(record, "schema", f'"{SCHEMA}"', base.NO_TRACE)
            if record.get("event_type") != "request_end":
                about.notes[_TOOLS] += 1
                continue
            row = _row(lines, about, record, names)
            if row is not None:
                yield row


def _row(lines: Lines, about: About, record: Record, names: Names) -> Row | None:
    request = base.inner(lines, record, "request")
    name = base.text(lines, request, "request_id")
    names.check(lines, name, "request_id")
    if request.get("replay") is None:
        about.notes[_NO_REPLAY] += 1
        return None
    if not request.get("output_tokens"):
        about.notes[_NO_OUTPUT] += 1
        return None
    replay = base.inner(lines, request, "replay")
    most = base.MAX_REQUEST_TOKENS
    about.fixed(lines, base.integer(lines, replay, "trace_block_size", 1, base.MAX_BLOCK_TOKENS))
    length = base.integer(lines, replay, "input_length", 1, most)
    ids = replay.get("input_sequence_hashes")
    if type(ids) is not list:
        lines.wrong_field(replay, "input_sequence_hashes", "a list of integers")
    if len(ids) != length // about.block_size:
        base.check_count(lines, len(ids), length, about.block_size, "input_sequence_hashes")
    received = base.nanoseconds(lines, request, "request_received_ms")
    session = None
    if record.get("agent_context") is not None:
        session = base.text(lines, base.inner(lines, record, "agent_context"), "session_id")
    output = base.integer(lines, request, "output_tokens", 1, most)
    return Row(received, length, output, ids, session=session, start_ns=received)
