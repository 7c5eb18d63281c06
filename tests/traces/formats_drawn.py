"""Rows, and how they stand in a file of each format: the other side of the readers.

Each writer gives the text of a file that has just these requests. SAMPLES has two requests that
begin alike in each format.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import NamedTuple

BLOCK = 16


class Drawn(NamedTuple):
    """A request: seconds (a quarter each), tokens, ids for all its blocks, whole or not."""

    second: float
    input_length: int
    output_length: int
    ids: tuple[int, ...]

    @property
    def whole(self) -> tuple[int, ...]:
        return self.ids[: self.input_length // BLOCK]


def _lines(records: Sequence[object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def mooncake(rows: Sequence[Drawn]) -> str:
    return _lines(
        [
            {
                "timestamp": row.second * 1000,
                "input_length": row.input_length,
                "output_length": row.output_length,
                "hash_ids": row.ids,
            }
            for row in rows
        ]
    )


def bailian(rows: Sequence[Drawn]) -> str:
    return _lines(
        [
            {
                "chat_id": 100 + place,
                "parent_chat_id": -1,
                "timestamp": row.second,
                "input_length": row.input_length,
                "output_length": row.output_length,
                "type": "text",
                "turn": 1,
                "hash_ids": row.ids,
            }
            for place, row in enumerate(rows)
        ]
    )


def dynamo(rows: Sequence[Drawn]) -> str:
    return _lines(
        [
            {
                "timestamp": place,
                "event": {
                    "schema": "dynamo.request.trace.v1",
                    "event_type": "request_end",
                    "event_time_unix_ms": 0,
                    "request": {
                        "request_id": f"r{place}",
                        "request_received_ms": int(row.second * 1000),
                        "output_tokens": row.output_length,
                        "replay": {
                            "trace_block_size": BLOCK,
                            "input_length": row.input_length,
                            "input_sequence_hashes": row.ids,
                        },
                    },
                },
            }
            for place, row in enumerate(rows)
        ]
    )


def native(rows: Sequence[Drawn]) -> str:
    header = {"format": "hicache-trace", "version": 2, "requests": "blocks", "block_size": BLOCK}
    return _lines(
        [
            header,
            *(
                {
                    "timestamp": row.second * 1000,
                    "input_length": row.input_length,
                    "output_length": row.output_length,
                    "blocks": [[one, 1] if one % 2 else one for one in row.ids],
                }
                for row in rows
            ),
        ]
    )


def azure(rows: Sequence[Drawn]) -> str:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    for row in rows:
        whole = int(row.second)
        moment = f"2023-11-16 {whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
        fraction = f"{int((row.second - whole) * 10_000_000):07}"
        text += f"{moment}.{fraction},{row.input_length},{row.output_length}\r\n"
    return text


def burstgpt(rows: Sequence[Drawn]) -> str:
    text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    for row in rows:
        tokens = f"{row.input_length},{row.output_length},{row.input_length + row.output_length}"
        text += f"{row.second},GPT-4,{tokens},API log\n"
    return text


def splitwise(rows: Sequence[Drawn]) -> str:
    text = "request_id,arrival_timestamp,prompt_size,token_size\n"
    for place, row in enumerate(rows):
        text += f"{place},{row.second},{row.input_length},{row.output_length}\n"
    return text


def serving_benchmark(rows: Sequence[Drawn]) -> str:
    run = {
        "backend": "sglang",
        "input_lens": [row.input_length for row in rows],
        "output_lens": [row.output_length for row in rows],
        "start_times": [row.second for row in rows],
    }
    return json.dumps(run, indent=2)


WITH_IDS: dict[str, Callable[[Sequence[Drawn]], str]] = {
    "mooncake": mooncake,
    "bailian": bailian,
    "dynamo": dynamo,
    "native": native,
}
LENGTHS: dict[str, Callable[[Sequence[Drawn]], str]] = {
    "azure": azure,
    "burstgpt": burstgpt,
    "splitwise": splitwise,
    "serving-benchmark": serving_benchmark,
}
# Formats whose times begin at 0.
FROM_ZERO = {"dynamo", *LENGTHS}

_TWO = (
    Drawn(1.0, 600, 40, tuple(range(38))),
    Drawn(1.5, 1000, 30, (*range(20), *range(200, 243))),
)
_IDS = ", ".join(map(str, range(520)))


def _agent(new: int, cached: int, second: int) -> dict[str, object]:
    usage = {"input_tokens": 4, "cache_creation_input_tokens": new, "output_tokens": 61}
    return {
        "type": "assistant",
        "sessionId": "s",
        "timestamp": f"2026-11-18T11:06:{second}.344Z",
        "message": {"usage": usage | {"cache_read_input_tokens": cached}},
    }


SAMPLES = {name: write(_TWO) for name, write in (WITH_IDS | LENGTHS).items()} | {
    "mooncake": _lines(
        [
            {"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [7, 8]},
            {"timestamp": 1.5, "input_length": 1000, "output_length": 1, "hash_ids": [7, 9]},
        ]
    ),
    "native": _lines(
        [
            {"format": "hicache-trace", "version": 1},
            {"timestamp": 0, "input": [["a", 600]], "output": ["b", 40]},
            {"after": 0, "input": [["a", 600], ["b", 40], ["c", 9]], "output": ["d", 2]},
        ]
    ),
    "openai": _lines(
        [
            {
                "object": "chat.completion",
                "created": 1763892000 + more,
                "usage": {"prompt_tokens": 600 + more, "completion_tokens": 40},
            }
            for more in (0, 5)
        ]
    ),
    "transcript": _lines([{"type": "user"}, _agent(600, 0, 40), _agent(96, 600, 48)]),
    "log": "time,input,output,session,turn\n"
    "2026-11-23T10:00:00Z,600,40,a,1\n2026-11-23T10:00:05Z,700,30,a,2\n",
    "chat": json.dumps(
        [
            {
                "conversations": [
                    {"from": "human", "value": "one two"},
                    {"from": "gpt", "value": "three four"},
                    {"from": "human", "value": "five"},
                    {"from": "gpt", "value": "six"},
                ]
            }
        ]
    )
    + "\n",
    "weka": json.dumps(
        {
            "id": "trace_0001",
            "block_size": 64,
            "hash_id_scope": "local",
            "requests": [
                {"t": 0.0, "in": 580, "out": 20, "hash_ids": [*range(9)], "api_time": 1.5},
                {"t": 4.0, "in": 650, "out": 5, "hash_ids": [*range(8), 10, 11], "api_time": 1.0},
            ],
        }
    ),
    "vllm": f"""\
INFO 06-14 17:27:40 [api_server.py:9] a line about something else
DEBUG 06-14 17:27:48 [logger.py:71] Request chatcmpl-a details: prompt: 'x', \
prompt_token_ids: [{_IDS}], prompt_embeds shape: None.
INFO 06-14 17:27:50 [logger.py:92] Generated response chatcmpl-a: output: 'y', \
output_token_ids: [1, 2, 3], finish_reason: stop
DEBUG 06-14 17:27:55 [logger.py:71] Request chatcmpl-b details: prompt: 'x', \
prompt_token_ids: [{_IDS}, 7], prompt_embeds shape: None.
""",
    "sglang": f"""\
{{"timestamp": "2026-06-30T09:15:47.282730", "event": "request.received", "rid": "a", "obj": {{}}}}
{{"timestamp": "2026-06-30T09:15:48.5", "event": "request.finished", "rid": "a", "obj": \
{{"input_ids": [{_IDS}]}}, "out": {{"meta_info": {{"prompt_tokens": 520, "completion_tokens": 9, \
"e2e_latency": 1.25}}}}}}
[2026-06-30 09:15:49] a line about something else
[2026-06-30 09:15:50] {{"timestamp": "2026-06-30T09:15:50", "event": "request.finished", "rid": \
"b", "obj": {{"input_ids": [{_IDS}, 7]}}, "out": {{"meta_info": {{"prompt_tokens": 521, \
"completion_tokens": 4, "e2e_latency": 0.5}}}}}}
""",
}
