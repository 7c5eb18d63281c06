"""Rows, and how they stand in a file of each format: the other side of the readers.

Each writer gives the text of a file that has just these requests, or None if the format cannot.
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
