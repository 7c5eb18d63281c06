"""Logs of lookups that an LMCache server writes (--lookup-hash-log-dir), a file or their folder.

Fields: timestamp (s), request_id, model_name, chunk_size, seq_len (tokens), chunk_hashes: one for
each *whole* chunk, so the last tokens of a prompt never hit. A log has no outputs: each request
yields one token. Models do not share chunks. Times count from the first lookup.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import base
from ._rows import About, Head, Row
from .base import Lines, Names, number_of

SUMMARY = "LMCache lookup logs: timestamp (s), seq_len, chunk_size, chunk_hashes"
FOLDER = ".jsonl"

SAMPLE = """\
{"timestamp": 1700000000.5, "request_id": "a", "model_name": "m", "chunk_size": 512, \
"seq_len": 1030, "chunk_hashes": ["0x1f", "0x2e"]}
{"timestamp": 1700000001.0, "request_id": "b", "model_name": "m", "chunk_size": 512, \
"seq_len": 1600, "chunk_hashes": ["0x1f", "0x2e", "0x3d"]}
"""

_AGAIN = "lookups of a request that was looked up before were left out."
_NO_OUTPUT = "requests have an output of one token: the log does not say how many they had."


def recognises(head: Head) -> bool:
    return {"chunk_hashes", "seq_len"} <= head.keys


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.partial = False
    names = Names()
    first_ns = -1
    for lines in about.each(files):
        for record in lines:
            if not names.is_new(base.text(lines, record, "request_id")):
                about.notes[_AGAIN] += 1
                continue
            about.fixed(lines, base.integer(lines, record, "chunk_size", 1, base.MAX_BLOCK_TOKENS))
            time_ns = base.nanoseconds(lines, record, "timestamp", base.NS_PER_S)
            first_ns = time_ns if first_ns < 0 else first_ns
            base.not_backwards(lines, time_ns, first_ns)
            length = base.integer(lines, record, "seq_len", 1, base.MAX_REQUEST_TOKENS)
            hashes = record.get("chunk_hashes")
            if type(hashes) is not list:
                lines.wrong_field(record, "chunk_hashes", "a list of hashes")
            base.check_whole(lines, len(hashes), length, about.block_size, "chunk_hashes")
            ids = [number_of(lines, value, "chunk_hashes") for value in hashes]
            model = base.text(lines, record, "model_name") if "model_name" in record else ""
            about.notes[_NO_OUTPUT] += 1
            yield Row(time_ns - first_ns, length, 1, ids, scope=model)
