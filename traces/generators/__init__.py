"""Synthetic workloads: the options of each generator, and its requests in the native format. The
same options give the same requests on every machine."""

import json
import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np

from sim.workload import DISTRIBUTIONS, POLICIES, SenderOptions
from traces.formats.base import MAX_REQUEST_TOKENS, MAX_TIME_MS, NS_PER_MS, NS_PER_S
from traces.formats.native import header
from traces.terminal.options import OUTPUT, OptionRecord, between, choice, option

_LEAST_RATE, _MOST_RATE = 1e-6, 1e6  # requests per second


def _rate(text: str) -> float:
    """Requests per second, or `inf` for all at once."""
    try:
        result = float(text)
    except ValueError:
        result = math.nan
    if result != math.inf and not _LEAST_RATE <= result <= _MOST_RATE:
        raise ValueError(f"expected requests per second such as 16 or 0.5, or inf, found {text!r}")
    return result


def _number(says: str, usual: int, least: int = 1) -> Any:
    return option(says, between(least, MAX_REQUEST_TOKENS), "N", default=usual)


def _pause(says: str, usual: int) -> Any:
    return option(says, between(0, MAX_TIME_MS // 2), "MS", default=usual)


@dataclass(frozen=True, slots=True)
class Generator(OptionRecord):
    """sender: how a client sends the requests; None if each is sent when it arrives."""

    SUMMARY = ""

    output: str = option("- is stdout", *OUTPUT, short="-o", default="-")

    @property
    def sender(self) -> SenderOptions | None:
        return None

    def records(self) -> Iterable[dict[str, Any]]:
        """The requests, in order."""
        raise NotImplementedError


def text(name: str, options: Generator) -> Iterator[str]:
    """The lines of the trace. The header comes first and records how the trace was made."""
    values = {key: "inf" if value == math.inf else value for key, value in asdict(options).items()}
    made_by = {"generator": name, **dict(sorted(values.items()))}
    del made_by["output"]
    yield json.dumps(header(made_by, options.sender)) + "\n"
    for record in options.records():
        yield json.dumps(record) + "\n"


# -- conversations and shared prompts


def _history(client: int, questions: Sequence[int], answer: int) -> list[list[Any]]:
    """The turns of a client so far: tokens of each question and of its answer."""
    return [
        [f"{side}{client}.{turn}", tokens]
        for turn, question in enumerate(questions)
        for side, tokens in (("q", question), ("a", answer))
    ]


@dataclass(frozen=True, slots=True)
class Multiturn(Generator):
    """Each client sends a turn, waits for the answer, pauses, and sends the next turn, whose prompt
    is the whole conversation so far and a new question. With pages of 64 tokens and the default
    lengths, round r can hit (8r - 1) / (8r + 4) of its prompt: the last token of an answer has no
    KV yet."""

    SUMMARY = "conversations, closed loop; each turn repeats the whole history"

    clients: int = _number("conversations at once", 10)
    rounds: int = _number("turns of each conversation", 12)
    input_tokens: int = _number("new prompt tokens of a turn", 256)
    output_tokens: int = _number("generated tokens of a turn", 256)
    system_tokens: int = _number("system prompt that all share", 0, least=0)
    think_ms: int = _pause("mean pause before the next turn", 0)
    start_ms: int = _pause("clients start spread over this time", 1000)
    seed: int = _number("seed of starts and pauses", 0, least=0)

    def records(self) -> Iterator[dict[str, Any]]:
        draw = np.random.default_rng([self.seed, 0])
        starts = sorted(draw.integers(0, self.start_ms + 1, size=self.clients).tolist())
        system = [["system", self.system_tokens]] if self.system_tokens else []
        for turn in range(self.rounds):
            for client, start in enumerate(starts):
                record: dict[str, Any] = {"timestamp": start}
                if turn:
                    pause = int(draw.integers(0, 2 * self.think_ms + 1))
                    record = {"after": (turn - 1) * self.clients + client, "delay": pause}
                history = _history(client, [self.input_tokens] * turn, self.output_tokens)
                record["input"] = [*system, *history, [f"q{client}.{turn}", self.input_tokens]]
                record["output"] = [f"a{client}.{turn}", self.output_tokens]
                yield record


@dataclass(frozen=True, slots=True)
class SharedPrefix(Generator):
    """A round asks every question of every group once, in random order; the next one asks the same
    questions again. A worker sends a request when its previous one has ended. With bursts, as in
    SGLang's bench_serving.py (generated-shared-prefix), a round is sent at once, in the same order
    each time, a second after the one before it has ended."""

    SUMMARY = "groups of questions after shared system prompts, the same in each round"

    groups: int = _number("system prompts", 128)
    prompts: int = _number("questions after each system prompt", 16)
    rounds: int = _number("times every question is asked", 3)
    system_tokens: int = _number("length of a system prompt", 4096)
    question_tokens: int = _number("length of a question", 512)
    output_tokens: int = _number("generated tokens of an answer", 128)
    workers: int = _number("requests in progress at once, without --bursts", 32)
    bursts: bool = option("send each round at once", default=False)
    seed: int = _number("seed of the order of each round", 0, least=0)

    @property
    def sender(self) -> SenderOptions | None:
        return SenderOptions(barrier=True, pause_ns=NS_PER_S) if self.bursts else None

    def records(self) -> Iterator[dict[str, Any]]:
        draw, count = np.random.default_rng([self.seed, 1]), self.groups * self.prompts
        order = list(range(count))
        Random(self.seed).shuffle(order)
        for turn in range(self.rounds):
            if not self.bursts:
                order = draw.permutation(count).tolist()
            for place, number in enumerate(order, start=turn * count):
                group, prompt = divmod(number, self.prompts)
                # with bursts one request of the round before: the barrier waits for the others
                before = (turn - 1) * count if self.bursts else place - self.workers
                yield {
                    **({"after": before} if before >= 0 else {"timestamp": 0}),
                    **({"session": f"{turn}.{number}"} if self.bursts else {}),
                    "input": [
                        [f"s{group}", self.system_tokens],
                        [f"q{group}.{prompt}", self.question_tokens],
                    ],
                    "output": [f"a{group}.{prompt}.{turn}", self.output_tokens],
                }


@dataclass(frozen=True, slots=True)
class BenchMultiturn(Generator):
    """Each client has one conversation, whose turns repeat the whole history, answers included. The
    sender takes one of the turns that are ready, pauses for a drawn time, and takes the next one.
    With a round barrier a turn is ready when every client has ended the turn before it and the
    script's pause is over. In the file, the turns of a round stand in an order that is drawn, too.
    """

    SUMMARY = "SGLang's bench_multiturn.py: clients, rounds, request rate, round barrier"

    num_clients: int = _number("conversations at once", 256)
    num_rounds: int = _number("turns of each conversation", 5)
    request_tokens: int = _number("length of the first prompt", 512)
    sub_question_tokens: int = _number("of each further turn; 0: as many", 0, least=0)
    output_tokens: int = _number("generated tokens of a turn", 64)
    request_rate: float = option("mean requests per second, or inf", _rate, "RATE", default=1.0)
    distribution: str = option(
        "of the pauses: poisson or uniform", choice(DISTRIBUTIONS), "NAME", default="poisson"
    )
    max_parallel: int = _number("most requests in progress", 128)
    ready_queue_policy: str = option(
        "which ready turn is next: random or fifo", choice(POLICIES), "NAME", default="random"
    )
    enable_round_barrier: bool = option(
        "a turn waits until all earlier turns of all clients have ended", default=False
    )
    barrier_pause_ms: int = _pause("pause between the rounds, with the barrier", 10_000)
    seed: int = _number("seed of order and pauses", 1, least=0)

    @property
    def sender(self) -> SenderOptions:
        at_once = self.request_rate == math.inf
        return SenderOptions(
            gap_ns=0 if at_once else max(1, round(NS_PER_S / self.request_rate)),
            distribution=self.distribution,
            max_parallel=self.max_parallel,
            policy=self.ready_queue_policy,
            barrier=self.enable_round_barrier,
            pause_ns=self.barrier_pause_ms * NS_PER_MS,
            seed=self.seed,
        )

    def records(self) -> Iterator[dict[str, Any]]:
        order = list(range(self.num_clients))
        shuffled = Random(self.seed)
        place = array("q", bytes(8 * self.num_clients))  # of the last turn of each client
        for turn in range(self.num_rounds):
            if self.ready_queue_policy == "random":
                shuffled.shuffle(order)
            for number, client in enumerate(order, start=turn * self.num_clients):
                later = self.sub_question_tokens or self.request_tokens
                numbers = [self.request_tokens, *[later] * turn]
                history = _history(client, numbers[:turn], self.output_tokens)
                start = {"after": place[client]} if turn else {"timestamp": 0}
                place[client] = number
                yield {
                    **start,
                    "input": [*history, [f"q{client}.{turn}", numbers[turn]]],
                    "output": [f"a{client}.{turn}", self.output_tokens],
                }


GENERATORS: dict[str, type[Generator]] = {
    "bench-multiturn": BenchMultiturn,
    "multiturn": Multiturn,
    "shared-prefix": SharedPrefix,
}
