"""The generators of public benchmarks: lengths, order, arrivals, and how the header says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.errors import CallerError
from traces.cli import main
from traces.formats._open import parse
from traces.formats.base import Lines
from traces.generators import GENERATORS, text

from .rig import HEADER, Capsys, Patch, as_lines, native, read


def made(words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Header and records. words: a generator and its options."""
    name, *rest = words.split()
    options = GENERATORS[name].read(rest)
    header, *records = map(json.loads, text(name, options))
    parse(Lines(name, as_lines([header, *records])))
    return header, records


@pytest.mark.parametrize(
    ("prompt", "answer", "count", "prompts", "answers"),
    [
        (1000, 1000, 10, 6101, 4220),
        (1000, 1000, 80, 39668, 40805),
        (1000, 1000, 500, 249831, 252662),
        (8000, 1000, 10, 41941, 4220),
        (8000, 1000, 80, 300020, 41669),
        (8000, 1000, 320, 1273893, 170000),
    ],
)
def test_the_seed_gives_the_totals_that_bench_serving_prints(
    prompt: int, answer: int, count: int, prompts: int, answers: int
) -> None:
    """Printed in the SGLang cookbook, with the script's default seed 1."""
    lengths = f"--random-input-tokens {prompt} --random-output-tokens {answer}"
    _, records = made(f"serving-random --num-prompts {count} {lengths}")
    assert sum(record["input"][0][1] for record in records) == prompts
    assert sum(record["output"][1] for record in records) == answers
    assert len({record["input"][0][0] for record in records}) == count


def test_requests_come_at_the_rate_or_at_once() -> None:
    _, at_once = made("serving-random --num-prompts 50")
    assert {record["timestamp"] for record in at_once} == {0}
    _, spread = made("serving-random --num-prompts 4000 --request-rate 20")
    times = np.array([record["timestamp"] for record in spread])
    gaps = np.diff(times)
    assert times[0] == 0
    assert 48 < gaps.mean() < 52
    assert 0.9 < gaps.std() / gaps.mean() < 1.1  # exponential


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


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("bench-multiturn --request-rate 0", "expected requests per second such as 16"),
        ("bench-multiturn --range-ratio 2", "expected a number from 0 to 1, found '2'"),
        ("bench-multiturn --distribution normal", "expected one of poisson, uniform"),
        ("bench-multiturn --range-ratio 0.5 --num-clients 1M", "4000000 requests whose lengths"),
        ("serving-random --seed 5G", "--seed: expected less than 2^32, found 5000000000"),
        ("serving-shared-prefix --runs 2 --request-rate 3", "expected --request-rate inf, found 3"),
    ],
)
def test_bad_options_are_one_line(
    words: str, said: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["generate", *words.split(), "-o", "out"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("sender", "said"),
    [
        (7, "sender: an object"),
        ({"rate": 1}, "sender: no other fields, found rate"),
        ({"request_rate": 0}, "sender.request_rate: "),
        ({"request_rate": True}, "sender.request_rate: a number"),
        ({"distribution": "normal"}, "sender.distribution: "),
        ({"ready_queue_policy": ["fifo"]}, "sender.ready_queue_policy: text"),
        ({"max_parallel": -1}, "sender.max_parallel: an integer >= 0, found -1"),
        ({"round_barrier": 1}, "sender.round_barrier: true or false, found 1"),
        ({"barrier_pause_ms": -5}, "sender.barrier_pause_ms: "),
        ({"seed": 1.5}, "sender.seed: an integer"),
    ],
)
def test_a_wrong_sender_is_named_with_its_line(sender: object, said: str) -> None:
    with pytest.raises(CallerError, match=r"^trace:1: expected ") as caught:
        read({**HEADER, "sender": sender}, native(("a", 9), output=("b", 1)))
    assert said in str(caught.value)
