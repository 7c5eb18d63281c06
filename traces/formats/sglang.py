"""Logs of requests of an SGLang server: --log-requests with --log-requests-format json.

Read are the lines with an object whose `event` is request.finished, among others: `timestamp` (a
date), `out.meta_info` with `prompt_tokens`, `completion_tokens` and `e2e_latency` (s), and the
`obj.input_ids` of --log-requests-level 3. A request arrived that latency before its line. Where the
first request has input_ids, prompts are identified by them in whole blocks; else there are lengths
only. Format: sgl-project/sglang, python/sglang/srt/utils/request_logger.py of 2026.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from . import base
from ._clock import moment_ns
from ._rows import About, Head, Row
from .base import Lines, Record, blocks_of

SUMMARY = "logs of an SGLang server: --log-requests --log-requests-format json"
BLOCK_SIZE = 16

_IDS = ", ".join(map(str, range(520)))
SAMPLE = f"""\
{{"timestamp": "2026-06-30T09:15:47.282730", "event": "request.received", "rid": "a", "obj": {{}}}}
{{"timestamp": "2026-06-30T09:15:48.5", "event": "request.finished", "rid": "a", "obj": \
{{"input_ids": [{_IDS}]}}, "out": {{"meta_info": {{"prompt_tokens": 520, "completion_tokens": 9, \
"e2e_latency": 1.25}}}}}}
[2026-06-30 09:15:49] a line about something else
[2026-06-30 09:15:50] {{"timestamp": "2026-06-30T09:15:50", "event": "request.finished", "rid": \
"b", "obj": {{"input_ids": [{_IDS}, 7]}}, "out": {{"meta_info": {{"prompt_tokens": 521, \
"completion_tokens": 4, "e2e_latency": 0.5}}}}}}
"""

_BEGIN, _EVENT, _FINISHED = '{"timestamp": ', '"event": "request.', '"event": "request.finished"'
_NOTHING = "requests without a prompt or an output were left out."
_LEVEL = "log with --log-requests-level 3, or with 1 for lengths only"


def recognises(head: Head) -> bool:
    return _EVENT in head.text and _BEGIN in head.text


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.sorts, about.partial = True, False
    begun = False
    for lines in about.each(files):
        for text in lines.texts():
            start = text.find(_BEGIN)
            if start < 0 or _FINISHED not in text:
                continue
            record = _object(lines, text[start:])
            ids = base.inner(lines, record, "obj").get("input_ids")
            if not begun:
                begun = True
                if ids is None:
                    about.lengths_only()
                else:
                    about.block_size = about.wanted_block_size or BLOCK_SIZE
            row = _row(lines, record)
            if row is None:
                about.notes[_NOTHING] += 1
            elif about.identity:
                yield row._replace(blocks=_blocks(lines, ids, row.input_length, about))
            else:
                yield row


def _object(lines: Lines, text: str) -> Record:
    try:
        record = base.decode(text)
    except (ValueError, RecursionError):
        record = None
    if type(record) is not dict:
        lines.wrong("a JSON object", base.shorten(text), "correct the line")
    return record


def _row(lines: Lines, record: Record) -> Row | None:
    """The request; None if it has no prompt or no output."""
    told = base.inner(lines, base.inner(lines, record, "out"), "meta_info")
    length, output = (
        base.integer(lines, told, field, 0, base.MAX_REQUEST_TOKENS)
        for field in ("prompt_tokens", "completion_tokens")
    )
    took_ns = base.nanoseconds(lines, told, "e2e_latency", base.NS_PER_S)
    try:
        ended_ns = moment_ns(base.text(lines, record, "timestamp"))
    except ValueError:
        lines.wrong_field(record, "timestamp", "a date such as 2026-06-30T09:15:47.282730")
    start_ns = max(0, ended_ns - took_ns)
    if not length or not output:
        return None
    return Row(start_ns, length, output, start_ns=start_ns)


def _blocks(lines: Lines, ids: object, length: int, about: About) -> array[int]:
    """The blocks of a prompt. Raises CallerError if the ids are not its `length` tokens."""
    if type(ids) is not list or len(ids) != length or {*map(type, ids)} != {int}:
        lines.wrong(f"obj.input_ids: the {length} tokens of the prompt", base.show(ids), _LEVEL)
    try:
        return blocks_of(array("q", ids), about.block_size)
    except OverflowError:
        lines.wrong("obj.input_ids of at most 63 bits", "a larger one", "correct the line")
