"""Qwen / Bailian usage traces: one request a line, 16-token blocks, times in seconds, chats.

Fields: chat_id, parent_chat_id (-1 for the first turn), timestamp (s), input_length, output_length,
type, turn, hash_ids. A chat is a session. The last block of a prompt may be padded, so its id can
change in the next turn: nothing here expects the history of a chat to contain it. Format:
github.com/alibaba-edu/qwen-bailian-usagetraces-anon.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from . import base
from ._rows import About, Head, Row
from .base import Lines

SUMMARY = "Qwen / Bailian usage: chat_id, parent_chat_id, timestamp (s), hash_ids of 16 tokens"
BLOCK_SIZE = 16

SAMPLE = """\
{"chat_id": 159, "parent_chat_id": -1, "timestamp": 61.114, "input_length": 521, \
"output_length": 132, "type": "text", "turn": 1, "hash_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, \
12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33]}
{"chat_id": 160, "parent_chat_id": 159, "timestamp": 62.5, "input_length": 530, \
"output_length": 20, "type": "text", "turn": 2, "hash_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, \
12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 34, 35]}
"""

_LEAST, _MOST = -(1 << 63), 1 << 63
_NO_PARENT = -1
_OUTSIDE = "requests continue a chat whose earlier turn is not in the file; they begin one here."


def recognises(head: Head) -> bool:
    return {"chat_id", "parent_chat_id", "hash_ids"} <= head.keys


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    about.block_size = about.wanted_block_size or BLOCK_SIZE
    chats: dict[int, int] = {}  # the first turn of each
    for lines in about.each(files):
        for record in lines:
            chat = base.integer(lines, record, "chat_id", _LEAST, _MOST)
            if chat in chats:
                lines.wrong("a chat_id of its own", f"{chat} again", "number each request once")
            parent = base.integer(lines, record, "parent_chat_id", _LEAST, _MOST)
            if parent != _NO_PARENT and parent not in chats:
                about.notes[_OUTSIDE] += 1
            chats[chat] = chats.get(parent, chat)
            ids = record.get("hash_ids")
            if type(ids) is not list:
                lines.wrong_field(record, "hash_ids", "a list of integers")
            row = Row(
                base.nanoseconds(lines, record, "timestamp", base.NS_PER_S),
                base.integer(lines, record, "input_length", 1, base.MAX_REQUEST_TOKENS),
                base.integer(lines, record, "output_length", 1, base.MAX_REQUEST_TOKENS),
                ids,
                session=str(chats[chat]),
            )
            base.check_count(lines, len(ids), row.input_length, about.block_size, "hash_ids")
            yield row
