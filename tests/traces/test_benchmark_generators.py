"""The generators of public benchmarks: lengths, order, arrivals, and how the header says it."""

from __future__ import annotations

import json
from typing import Any

from traces.formats import parse
from traces.formats.reading import Lines
from traces.generators import GENERATORS, text

from .rig import as_lines


def made(words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records. words: a generator and its options."""
    name, *rest = words.split()
    options = GENERATORS[name].read(rest)
    header, *records = map(json.loads, text(name, options))
    parse(Lines(name, as_lines([header, *records])))
    return header, records


def test_bursts_send_each_round_at_once_in_one_order() -> None:
    header, records = made("shared-prefix --bursts --groups 3 --prompts 2 --rounds 2 --seed 1")
    assert (header["sender"]["round_barrier"], header["sender"]["barrier_pause_ms"]) == (True, 1000)
    assert [record.get("after", -1) for record in records] == [-1] * 6 + [0] * 6
    assert [one["input"] for one in records[:6]] == [one["input"] for one in records[6:]]
    assert len({record["output"][0] for record in records}) == 12


def test_conversations_grow_by_an_answer_and_a_question() -> None:
    shape = "--num-clients 7 --num-rounds 4 --request-tokens 300 --sub-question-tokens 40"
    header, records = made(f"bench-multiturn {shape} --output-tokens 9 --enable-round-barrier")
    assert header["sender"] == {
        "request_rate": 1.0,
        "distribution": "poisson",
        "max_parallel": 128,
        "ready_queue_policy": "random",
        "round_barrier": True,
        "barrier_pause_ms": 10000.0,
        "seed": 1,
    }
    for number, record in enumerate(records):
        turn = number // 7
        assert sum(tokens for _, tokens in record["input"]) == 300 + turn * (9 + 40)
        if turn:
            before = records[record["after"]]
            assert record["after"] // 7 == turn - 1
            assert record["input"][:-1] == [*before["input"], before["output"]]
    orders = [[record["output"][0] for record in records[at : at + 7]] for at in range(0, 28, 7)]
    clients = [[name.split(".")[0] for name in order] for order in orders]
    assert all(sorted(order) == sorted(clients[0]) for order in clients)
    assert len({tuple(order) for order in clients}) > 1
