"""A sample of each format: two requests that begin alike."""

import json
from collections.abc import Sequence


def _lines(records: Sequence[object]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


_LENGTHS = ((1.0, 600, 40, [*range(38)]), (1.5, 1000, 30, [*range(20), *range(200, 243)]))


def _ended(
    name: str, second: float, number: int, message: int, ids: list[int]
) -> dict[str, object]:
    replay = {"trace_block_size": 16, "input_length": number, "input_sequence_hashes": ids}
    request = {"request_id": name, "request_received_ms": int(second * 1000), "replay": replay}
    event = {"schema": "dynamo.request.trace.v1", "event_type": "request_end"}
    return {"timestamp": 1, "event": event | {"request": request | {"output_tokens": message}}}


_IDS = ", ".join(map(str, range(520)))


def _agent(new: int, cached: int, second: int) -> dict[str, object]:
    usage = {"input_tokens": 4, "cache_creation_input_tokens": new, "output_tokens": 61}
    return {
        "type": "assistant",
        "sessionId": "s",
        "timestamp": f"2026-11-18T11:06:{second}.344Z",
        "message": {"usage": usage | {"cache_read_input_tokens": cached}},
    }


_TALK = [
    {"from": role, "value": message}
    for role, message in [
        *(("human", "one two"), ("gpt", "three four")),
        *(("human", "five"), ("gpt", "six")),
    ]
]
SAMPLES = {
    "bailian": _lines(
        [
            {"chat_id": 100 + place, "parent_chat_id": -1, "timestamp": second, "type": "text"}
            | {"input_length": requested, "output_length": message, "hash_ids": ids}
            for place, (second, requested, message, ids) in enumerate(_LENGTHS)
        ]
    ),
    "dynamo": _lines([_ended(f"r{place}", *length) for place, length in enumerate(_LENGTHS)]),
    "azure": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "2023-11-16 00:00:01.0000000,600,40\r\n2023-11-16 00:00:01.5000000,1000,30\r\n",
    "burstgpt": "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "1.0,GPT-4,600,40,640,API log\n1.5,GPT-4,1000,30,1030,API log\n",
    "splitwise": "request_id,arrival_timestamp,prompt_size,token_size\n"
    "0,1.0,600,40\n1,1.5,1000,30\n",
    "serving-benchmark": json.dumps(
        {"input_lens": [600, 1000], "output_lens": [40, 30], "start_times": [1.0, 1.5]}, indent=2
    ),
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
            {"object": "chat.completion", "created": 1763892000 + more}
            | {"usage": {"prompt_tokens": 600 + more, "completion_tokens": 40}}
            for more in (0, 5)
        ]
    ),
    "transcript": _lines([{"type": "user"}, _agent(600, 0, 40), _agent(96, 600, 48)]),
    "log": "time,input,output,session,turn\n"
    "2026-11-23T10:00:00Z,600,40,a,1\n2026-11-23T10:00:05Z,700,30,a,2\n",
    "chat": json.dumps([{"conversations": _TALK}]) + "\n",
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
