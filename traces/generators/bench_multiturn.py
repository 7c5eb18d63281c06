"""The workload of SGLang's benchmark/hicache/bench_multiturn.py, with the script's options.

Each client has one conversation. Its first prompt has `request_tokens`; each further turn repeats
the whole history, answers included, and asks `sub_question_tokens` more. The sender takes one of
the turns that are ready, pauses for a drawn time, and takes the next one. With a round barrier a
turn is ready when every client has ended the turn before it and the script's pause after that is
over. In the file, the turns of a round stand in an order that is drawn, too: `hits` mode has it.

Left out: the request of 100 tokens that newer versions of the script send at each barrier.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from sim.sending import DISTRIBUTIONS, POLICIES, SenderOptions
from traces.formats.base import MAX_TIME_MS, NS_PER_MS, Record
from traces.generators.base import Extent
from traces.terminal.options import OptionRecord, at_least, between, choice
from traces.terminal.rows import option

from . import _rates

SUMMARY = "SGLang's bench_multiturn.py: clients, rounds, request rate, round barrier"

_NS_PER_S = 1_000_000_000
_MOST_DRAWN = 4_000_000


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    num_clients: int = _rates.number("conversations at once", 256)
    num_rounds: int = _rates.number("turns of each conversation", 5)
    request_tokens: int = _rates.tokens("length of the first prompt", 512)
    sub_question_tokens: int = option(
        "new tokens of each further turn; 0: as many as the first prompt has",
        at_least(0),
        "TOKENS",
        default=0,
    )
    output_tokens: int = _rates.tokens("generated tokens of a turn", 64)
    range_ratio: float = option(
        "least length as a part of the longest", _rates.part, "PART", default=1.0
    )
    request_rate: float = option(
        "mean requests per second, or inf", _rates.rate, "RATE", default=1.0
    )
    distribution: str = option(
        "of the pauses between requests: poisson or uniform",
        choice(DISTRIBUTIONS),
        "NAME",
        default="poisson",
    )
    max_parallel: int = _rates.number("most requests in progress", 128)
    ready_queue_policy: str = option(
        "which ready turn is next: random or fifo", choice(POLICIES), "NAME", default="random"
    )
    enable_round_barrier: bool = option(
        "a turn waits until all earlier turns of all clients have ended", default=False
    )
    barrier_pause_ms: int = option(
        "pause between the rounds, with the barrier",
        between(0, MAX_TIME_MS // 2),
        "MS",
        default=10_000,
    )
    seed: int = option("seed of order, pauses and lengths", at_least(0), "N", default=1)

    @property
    def question_tokens(self) -> int:
        """The new tokens of every turn but the first."""
        return self.sub_question_tokens or self.request_tokens


def extent(options: Options) -> Extent:
    clients, rounds = options.num_clients, options.num_rounds
    segment = len(f'["q{clients}.{rounds}", {options.question_tokens}], ')
    longest = options.request_tokens + (rounds - 1) * options.question_tokens
    return Extent(
        clients * rounds,
        clients * rounds * (85 + rounds * segment),  # round r has 2r + 1 segments
        longest + rounds * options.output_tokens,
    )


def sender(options: Options) -> SenderOptions:
    at_once = options.request_rate == math.inf
    return SenderOptions(
        gap_ns=0 if at_once else max(1, round(_NS_PER_S / options.request_rate)),
        distribution=options.distribution,
        max_parallel=options.max_parallel,
        policy=options.ready_queue_policy,
        barrier=options.enable_round_barrier,
        pause_ns=options.barrier_pause_ms * NS_PER_MS,
        seed=options.seed,
    )


def records(options: Options) -> Iterator[Record]:
    asked, answered = _lengths(options)
    order = list(range(options.num_clients))
    shuffled = Random(options.seed)
    place = array("q", bytes(8 * options.num_clients))  # of the last turn of each client
    for turn in range(options.num_rounds):
        if options.ready_queue_policy == "random":
            shuffled.shuffle(order)
        for number, client in enumerate(order, start=turn * options.num_clients):
            history = [
                [f"{side}{client}.{before}", int(tokens[before, client])]
                for before in range(turn)
                for side, tokens in (("q", asked), ("a", answered))
            ]
            start: Record = {"after": place[client]} if turn else {"timestamp": 0}
            place[client] = number
            yield {
                **start,
                "input": [*history, [f"q{client}.{turn}", int(asked[turn, client])]],
                "output": [f"a{client}.{turn}", int(answered[turn, client])],
            }


def _lengths(options: Options) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The new tokens and the answer of each turn of each client: [turn, client]. The script draws
    those of all first turns, then those of the others."""
    clients, rounds = options.num_clients, options.num_rounds
    most = [options.request_tokens] + [options.question_tokens] * (rounds - 1)
    if options.range_ratio == 1:
        columns = np.array([most, [options.output_tokens] * rounds])[:, :, None]
        asked, answered = np.broadcast_to(columns, (2, rounds, clients))
        return asked, answered
    if clients * rounds > _MOST_DRAWN:
        raise CallerError(
            f"--range-ratio {options.range_ratio:g}: expected at most {_MOST_DRAWN} requests whose "
            f"lengths are drawn, found {clients * rounds}; ask for less, or leave it at 1"
        )
    draw = _rates.seeded(options.seed)
    parts: list[list[NDArray[np.int64]]] = [[], []]
    for tokens, turns in ((options.request_tokens, 1), (options.question_tokens, rounds - 1)):
        for found, longest in zip(parts, (tokens, options.output_tokens), strict=True):
            drawn = _rates.lengths(draw, longest, options.range_ratio, turns * clients)
            found.append(drawn.reshape(turns, clients))
    return np.concatenate(parts[0]), np.concatenate(parts[1])
