"""Logs of UCM (unified cache management): lines that begin with UCMTrace among other log lines.

    UCMTraceMeta: type=standard, trace_hash_block_size=512, ...
    UCMTrace: timestamp: 12.5, request_id: r, input_length: 600, output_length: 9, block_hashes: []

The size of a block is trace_hash_block_size of the UCMTraceMeta line, or vllm_hash_block_size of a
standard model. There is a hash for each *whole* block. output_length is the most that the request
asked for. Times are seconds of a clock without a date; they count from the first request. Requests
are put in the order of their times. The groups of hybrid models are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import base
from ._rows import About, Head, Row
from .base import Lines, Names, Record, number_of

SUMMARY = "UCM logs: UCMTrace lines with input_length, output_length, block_hashes"

SAMPLE = """\
INFO 11-22 10:00:00 UCMTraceMeta: type=standard, is_mla=False, trace_hash_block_size=512
INFO 11-22 10:00:01 UCMTrace: timestamp: 100.5, request_id: a, input_length: 1030, \
output_length: 8, block_hashes: ['1f', '2e']
INFO 11-22 10:00:02 a line about something else
INFO 11-22 10:00:03 UCMTrace: timestamp: 101.25, request_id: b, input_length: 1600, \
output_length: 8, block_hashes: ['1f', '2e', '3d']
"""

_META = re.compile(r"\bUCMTraceMeta:(?P<fields>.*)")
# Nothing in it runs past the next UCMTrace, so a line with many of them takes linear time.
_TRACE = re.compile(
    r"\bUCMTrace:\s*timestamp:\s*(?P<timestamp>[^,\s]{1,40}),"
    r"(?:\s*request_id:\s*(?P<request_id>[^,]{1,256}),)?"
    r"\s*input_length:\s*(?P<input_length>\d{1,19}),"
    r"\s*output_length:\s*(?P<output_length>\d{1,19}),"
    r"\s*block_hashes:\s*\[(?P<block_hashes>[^\[\]]*)\]"
)
_HASH = re.compile(r"['\"]?([\w+/=-]{1,512})['\"]?")
_BLOCK_SIZES = ("trace_hash_block_size", "vllm_hash_block_size")


def recognises(head: Head) -> bool:
    return not head.line.startswith(("{", "[")) and "UCMTrace" in head.text


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.sorts, about.partial = True, False
    names = Names()
    for lines in about.each(files):
        for text in lines.texts():
            meta = _META.search(text)
            if meta is not None:
                _learn(lines, about, meta["fields"])
            elif "UCMTrace:" in text:
                yield _row(lines, about, text, names)


def _learn(lines: Lines, about: About, fields: str) -> None:
    """The size of a block, from the line that describes the model."""
    pairs = (part.partition("=") for part in fields.split(","))
    found = {name.strip(): value.strip() for name, _, value in pairs}
    usable = _BLOCK_SIZES[: 2 if found.get("type", "standard") == "standard" else 1]
    for name in usable:
        if found.get(name, "").isdecimal() and len(found[name]) < 10:
            about.fixed(lines, int(found[name]))
            return


def _row(lines: Lines, about: About, text: str, names: Names) -> Row:
    found = _TRACE.search(text)
    if found is None:
        lines.wrong(
            "UCMTrace: timestamp, request_id, input_length, output_length, block_hashes",
            base.shorten(text[text.index("UCMTrace:") :]),
            "correct the line",
        )
    about.block_size = about.block_size or about.wanted_block_size
    if not about.block_size:
        lines.wrong(
            "a UCMTraceMeta line with trace_hash_block_size before the first request",
            "none",
            "give the size of the blocks with --block-size",
        )
    if found["request_id"]:
        names.check(lines, found["request_id"].strip(), "request_id")
    values: Record = {name: int(found[name]) for name in ("input_length", "output_length")}
    try:
        values["timestamp"] = float(found["timestamp"])
    except ValueError:
        values["timestamp"] = found["timestamp"]
    start = base.nanoseconds(lines, values, "timestamp", base.NS_PER_S)
    length = base.integer(lines, values, "input_length", 1, base.MAX_REQUEST_TOKENS)
    output = base.integer(lines, values, "output_length", 1, base.MAX_REQUEST_TOKENS)
    ids = [number_of(lines, one, "block_hashes") for one in _HASH.findall(found["block_hashes"])]
    base.check_whole(lines, len(ids), length, about.block_size, "block_hashes")
    return Row(start, length, output, ids, start_ns=start)
