"""Conversations: each client sends a turn, waits for the answer, pauses, and sends the next turn.

The prompt of a turn is the whole conversation so far (system prompt, questions and answers) and a
new question, so everything but the question can hit. The loop is closed: a turn starts after the
turn before it ended. With pages of 64 tokens and the default lengths, round r can hit
(8r - 1) / (8r + 4) of its prompt. The last generated token has no KV yet, so the last page of an
answer cannot hit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traces.formats.base import MAX_TIME_MS, Record
from traces.generators.base import Extent
from traces.terminal.options import OptionRecord, at_least, between
from traces.terminal.rows import option

SUMMARY = "conversations, closed loop; each turn repeats the whole history"


_PAUSE = between(0, MAX_TIME_MS // 2)


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    clients: int = option("conversations at once", at_least(1), default=10)
    rounds: int = option("turns of each conversation", at_least(1), default=12)
    input_tokens: int = option("new prompt tokens of a turn", at_least(1), default=256)
    output_tokens: int = option("generated tokens of a turn", at_least(1), default=256)
    system_tokens: int = option("system prompt that all share", at_least(0), default=0)
    think_ms: int = option("mean pause before the next turn", _PAUSE, default=0)
    start_ms: int = option("clients start spread over this time", _PAUSE, default=1000)
    seed: int = option("seed of starts and pauses", at_least(0), default=0)


def extent(options: Options) -> Extent:
    clients, rounds = options.clients, options.rounds
    segment = len(f'["q{clients}.{rounds}", {options.input_tokens}], ')
    system = options.system_tokens
    fixed = 80 + len(f'["system", {system}], ') * bool(system)  # of each request
    turn = options.input_tokens + options.output_tokens
    return Extent(
        clients * rounds,
        clients * rounds * (fixed + rounds * segment),  # round r has 2r + 1 segments
        system + rounds * turn,
    )


def sender(options: Options) -> None:
    return None


def records(options: Options) -> Iterator[Record]:
    draw = np.random.default_rng([options.seed, 0])
    starts = sorted(
        int(start) for start in draw.integers(0, options.start_ms + 1, size=options.clients)
    )
    system = [["system", options.system_tokens]] if options.system_tokens else []
    for turn in range(options.rounds):
        for client, start in enumerate(starts):
            history = [
                [f"{side}{client}.{before}", tokens]
                for before in range(turn)
                for side, tokens in (("q", options.input_tokens), ("a", options.output_tokens))
            ]
            record: Record = {"timestamp": start}
            if turn:
                pause = int(draw.integers(0, 2 * options.think_ms + 1))
                record = {"after": (turn - 1) * options.clients + client, "delay": pause}
            record["input"] = [*system, *history, [f"q{client}.{turn}", options.input_tokens]]
            record["output"] = [f"a{client}.{turn}", options.output_tokens]
            yield record
