"""Synthetic workloads: the options of each generator, and its requests in the native format.

A generator is a class of options in GENERATORS. The same options give the same requests on every
machine. Those of serving benchmarks have the options of their scripts and draw lengths as these do,
with NumPy's legacy generator, so the same seed gives the lengths of the script.
"""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from sim.sending import DISTRIBUTIONS, POLICIES, SenderOptions
from traces.formats.base import MAX_TIME_MS, NS_PER_MS, NS_PER_S, Record
from traces.formats.native import header
from traces.terminal.options import OptionRecord, at_least, between, choice, option

_LEAST_RATE, _MOST_RATE = 1e-6, 1e6  # requests per second
_US_PER_S = 1_000_000
_MOST_DRAWN = 4_000_000
_PAUSE = between(0, MAX_TIME_MS // 2)


class Generator(OptionRecord):
    """extent: how many requests there will be, and the most tokens of one with its answer, found
    without making them. sender: how a client sends them; None if each is sent when it arrives."""

    SUMMARY = ""

    @property
    def sender(self) -> SenderOptions | None:
        return None

    @property
    def extent(self) -> tuple[int, int]:
        raise NotImplementedError

    def records(self) -> Iterable[Record]:
        """The requests, in order."""
        raise NotImplementedError


def text(name: str, options: Generator) -> Iterator[str]:
    """The lines of the trace. The header comes first and records how the trace was made."""
    values = {key: "inf" if value == math.inf else value for key, value in asdict(options).items()}
    made_by = {"generator": name, **dict(sorted(values.items()))}
    yield json.dumps(header(made_by, options.sender)) + "\n"
    for record in options.records():
        yield json.dumps(record) + "\n"


# -- conversations and shared prompts


@dataclass(frozen=True, slots=True)
class Multiturn(Generator):
    """Each client sends a turn, waits for the answer, pauses, and sends the next turn, whose prompt
    is the whole conversation so far and a new question. With pages of 64 tokens and the default
    lengths, round r can hit (8r - 1) / (8r + 4) of its prompt: the last token of an answer has no
    KV yet."""

    SUMMARY = "conversations, closed loop; each turn repeats the whole history"

    clients: int = option("conversations at once", at_least(1), default=10)
    rounds: int = option("turns of each conversation", at_least(1), default=12)
    input_tokens: int = option("new prompt tokens of a turn", at_least(1), default=256)
    output_tokens: int = option("generated tokens of a turn", at_least(1), default=256)
    system_tokens: int = option("system prompt that all share", at_least(0), default=0)
    think_ms: int = option("mean pause before the next turn", _PAUSE, default=0)
    start_ms: int = option("clients start spread over this time", _PAUSE, default=1000)
    seed: int = option("seed of starts and pauses", at_least(0), default=0)

    @property
    def extent(self) -> tuple[int, int]:
        return self.clients * self.rounds, self.system_tokens + self.rounds * (
            self.input_tokens + self.output_tokens
        )

    def records(self) -> Iterator[Record]:
        draw = np.random.default_rng([self.seed, 0])
        starts = sorted(draw.integers(0, self.start_ms + 1, size=self.clients).tolist())
        system = [["system", self.system_tokens]] if self.system_tokens else []
        for turn in range(self.rounds):
            for client, start in enumerate(starts):
                record: Record = {"timestamp": start}
                if turn:
                    pause = int(draw.integers(0, 2 * self.think_ms + 1))
                    record = {"after": (turn - 1) * self.clients + client, "delay": pause}
                history = [
                    [f"{side}{client}.{before}", tokens]
                    for before in range(turn)
                    for side, tokens in (("q", self.input_tokens), ("a", self.output_tokens))
                ]
                record["input"] = [*system, *history, [f"q{client}.{turn}", self.input_tokens]]
                record["output"] = [f"a{client}.{turn}", self.output_tokens]
                yield record


@dataclass(frozen=True, slots=True)
class SharedPrefix(Generator):
    """A round asks every question of every group once, in random order; the next one asks the same
    questions again. A worker sends a request when its previous one has ended."""

    SUMMARY = "groups of questions after shared system prompts, the same in each round"

    groups: int = option("system prompts", at_least(1), default=128)
    prompts: int = option("questions after each system prompt", at_least(1), default=16)
    rounds: int = option("times every question is asked", at_least(1), default=3)
    system_tokens: int = option("length of a system prompt", at_least(1), default=4096)
    question_tokens: int = option("length of a question", at_least(1), default=512)
    output_tokens: int = option("generated tokens of an answer", at_least(1), default=128)
    workers: int = option("requests in progress at once", at_least(1), default=32)
    seed: int = option("seed of the order of each round", at_least(0), default=0)

    @property
    def extent(self) -> tuple[int, int]:
        return (
            self.groups * self.prompts * self.rounds,
            self.system_tokens + self.question_tokens + self.output_tokens,
        )

    def records(self) -> Iterator[Record]:
        draw = np.random.default_rng([self.seed, 1])
        index = 0
        for turn in range(self.rounds):
            for place in draw.permutation(self.groups * self.prompts):
                group, prompt = divmod(int(place), self.prompts)
                before = index - self.workers
                yield {
                    **({"after": before} if before >= 0 else {"timestamp": 0}),
                    "input": [
                        [f"s{group}", self.system_tokens],
                        [f"q{group}.{prompt}", self.question_tokens],
                    ],
                    "output": [f"a{group}.{prompt}.{turn}", self.output_tokens],
                }
                index += 1


@dataclass(frozen=True, slots=True)
class RandomTree(Generator):
    """A request walks down from the root, each time to one of `fanout` children (low numbers more
    often), and cuts the last segment at a random token. Some requests continue the answer of an
    earlier one instead. Arrivals are a Poisson process."""

    SUMMARY = "random walks down a tree of prompts, open loop; for stress, not realism"

    requests: int = option("number of requests", at_least(1), default=1000)
    depth: int = option("longest walk, in segments", at_least(1), default=6)
    fanout: int = option("children of each tree node", at_least(1), default=4)
    segment_tokens: int = option("longest segment", at_least(1), default=512)
    output_tokens: int = option("longest answer", at_least(1), default=64)
    rate: int = option("mean arrivals per second", at_least(1), default=20)
    follow_percent: int = option("requests that follow an answer", at_least(0), default=25)
    seed: int = option("seed of all random draws", at_least(0), default=0)

    @property
    def extent(self) -> tuple[int, int]:
        segments = 2 * self.depth + 1  # at most, in a prompt that follows answers
        longest = segments * max(self.segment_tokens, self.output_tokens) + self.output_tokens
        return self.requests, longest

    def records(self) -> Iterator[Record]:
        draw = np.random.default_rng([self.seed, 2])
        lengths: dict[str, int] = {}
        # only recent requests are continued, so memory and prompts stay bounded
        latest: list[list[list[str | int]]] = []
        now_us = 0
        for index in range(self.requests):
            now_us += round(draw.exponential(1e6 / self.rate))
            if latest and int(draw.integers(100)) < self.follow_percent:
                prompt = [*latest[int(draw.integers(len(latest)))]]
                prompt.append([f"f{index}", int(draw.integers(1, self.segment_tokens + 1))])
            else:
                prompt = self._walk(draw, lengths)
            answer: list[str | int] = [f"a{index}", int(draw.integers(1, self.output_tokens + 1))]
            if len(prompt) < 2 * self.depth:
                latest = [*latest[-15:], [*prompt, answer]]
            yield {"timestamp": now_us // 1000, "input": prompt, "output": answer}

    def _walk(self, draw: np.random.Generator, lengths: dict[str, int]) -> list[list[str | int]]:
        path = "t"
        prompt: list[list[str | int]] = []
        for _ in range(int(draw.integers(1, self.depth + 1))):
            # the smaller of two draws, so low numbers are more frequent
            child = int(draw.integers(self.fanout, size=2).min())
            path = f"{path}.{child}"
            length = int(draw.integers(1, self.segment_tokens + 1))
            prompt.append([path, lengths.setdefault(path, length)])
        last = str(prompt[-1][0])
        prompt[-1] = [last, int(draw.integers(1, lengths[last] + 1))]
        return prompt


# -- SGLang's serving benchmarks


def _rate(text: str) -> float:
    """Requests per second, or `inf` for all at once."""
    found = _float(text)
    if found != math.inf and not _LEAST_RATE <= found <= _MOST_RATE:
        raise ValueError(f"expected requests per second such as 16 or 0.5, or inf, found {text!r}")
    return found


def _part(text: str) -> float:
    found = _float(text)
    if not 0 <= found <= 1:
        raise ValueError(f"expected a number from 0 to 1, found {text!r}")
    return found


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _number(says: str, usual: int, metavar: str = "N", least: int = 1) -> Any:
    return option(says, at_least(least), metavar, default=usual)


def _tokens(says: str, usual: int, least: int = 1) -> Any:
    return _number(says, usual, "TOKENS", least)


def _seeded(seed: int) -> np.random.RandomState:
    """NumPy's legacy generator, which `np.random.seed` sets. Raises CallerError."""
    if seed >= 1 << 32:
        raise CallerError(f"--seed: expected less than 2^32, found {seed}; choose a smaller one")
    return np.random.RandomState(seed)


def _lengths(
    draw: np.random.RandomState, tokens: int, range_ratio: float, count: int
) -> NDArray[np.int64]:
    """Whole numbers from `range_ratio` of the tokens, at least 1, to all of them."""
    least = max(int(tokens * range_ratio), 1)
    return draw.randint(least, tokens + 1, size=count).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Serving(Generator):
    """The options that every dataset of bench_serving.py has."""

    request_rate: float = option(
        "mean requests per second, or inf", _rate, "RATE", default=math.inf
    )
    max_concurrency: int = _number("most in progress; 0: no limit", 0, least=0)
    seed: int = _number("seed of all random draws", 1, least=0)

    @property
    def sender(self) -> SenderOptions | None:
        return self._at_most()

    def _at_most(self) -> SenderOptions | None:
        return SenderOptions(max_parallel=self.max_concurrency) if self.max_concurrency else None

    def _arrivals_ms(self, draw: np.random.RandomState, count: int) -> list[float]:
        """Times of a Poisson process, in whole microseconds; all 0 at an infinite rate."""
        if self.request_rate == math.inf:
            return [0.0] * count
        gaps = draw.exponential(1 / self.request_rate, size=max(count - 1, 0))
        times = np.concatenate([[0.0], np.cumsum(gaps)])
        rounded: list[float] = (np.round(times * _US_PER_S) / 1000).tolist()
        return rounded


@dataclass(frozen=True, slots=True)
class ServingRandom(_Serving):
    """The lengths are those of the script: its seed gives the totals that it prints. Here no two
    prompts begin alike, while the script cuts them from ShareGPT conversations."""

    SUMMARY = "SGLang's bench_serving.py, dataset random: unique prompts of drawn lengths"

    num_prompts: int = _number("number of requests", 1000)
    random_input_tokens: int = _tokens("longest prompt", 1024)
    random_output_tokens: int = _tokens("longest answer", 1024)
    random_range_ratio: float = option(
        "least length as a part of the longest", _part, "PART", default=0.0
    )

    @property
    def extent(self) -> tuple[int, int]:
        return self.num_prompts, self.random_input_tokens + self.random_output_tokens

    def records(self) -> Iterator[Record]:
        draw, count, ratio = _seeded(self.seed), self.num_prompts, self.random_range_ratio
        prompts = _lengths(draw, self.random_input_tokens, ratio, count).tolist()
        answers = _lengths(draw, self.random_output_tokens, ratio, count).tolist()
        times = self._arrivals_ms(draw, count)
        for number, (time, prompt, answer) in enumerate(zip(times, prompts, answers, strict=True)):
            yield {
                "timestamp": time,
                "input": [[f"p{number}", prompt]],
                "output": [f"a{number}", answer],
            }


@dataclass(frozen=True, slots=True)
class ServingSharedPrefix(_Serving):
    """Each group has a system prompt, and its prompts append one question each, in random order. A
    further run begins a second after the one before it has ended, as in the script; its questions
    are the same, so that it shows what the cache kept."""

    SUMMARY = "SGLang's bench_serving.py, dataset generated-shared-prefix, repeated"

    gsp_num_groups: int = _number("system prompts", 64)
    gsp_prompts_per_group: int = _number("questions of each of them", 16)
    gsp_system_prompt_tokens: int = _number("length of one", 2048)
    gsp_question_tokens: int = _tokens("length of a question", 128)
    gsp_output_tokens: int = _tokens("generated tokens of an answer", 256)
    runs: int = _number("times the benchmark is run, one after another", 1)

    @property
    def extent(self) -> tuple[int, int]:
        requests = self.gsp_num_groups * self.gsp_prompts_per_group * self.runs
        prompt = self.gsp_system_prompt_tokens + self.gsp_question_tokens
        return requests, prompt + self.gsp_output_tokens

    @property
    def sender(self) -> SenderOptions | None:
        if self.runs == 1:
            return self._at_most()
        return SenderOptions(max_parallel=self.max_concurrency, barrier=True, pause_ns=NS_PER_S)

    def records(self) -> Iterator[Record]:
        if self.runs > 1 and self.request_rate != math.inf:
            raise CallerError(
                f"--runs {self.runs}: expected --request-rate inf, found "
                f"{self.request_rate:g}; run it once, or send each run at once"
            )
        prompts = self.gsp_prompts_per_group
        order = list(range(self.gsp_num_groups * prompts))
        Random(self.seed).shuffle(order)
        times = self._arrivals_ms(_seeded(self.seed), len(order))
        for run in range(self.runs):
            for place, number in enumerate(order):
                group, prompt = divmod(number, prompts)
                # one request of the run before: the barrier waits for the others
                start = {"after": (run - 1) * len(order)} if run else {"timestamp": times[place]}
                yield {
                    **start,
                    "session": f"{run}.{number}",
                    "input": [
                        [f"s{group}", self.gsp_system_prompt_tokens],
                        [f"q{group}.{prompt}", self.gsp_question_tokens],
                    ],
                    "output": [f"a{group}.{prompt}.{run}", self.gsp_output_tokens],
                }


@dataclass(frozen=True, slots=True)
class BenchMultiturn(Generator):
    """Each client has one conversation, whose turns repeat the whole history, answers included. The
    sender takes one of the turns that are ready, pauses for a drawn time, and takes the next one.
    With a round barrier a turn is ready when every client has ended the turn before it and the
    script's pause is over. In the file, the turns of a round stand in an order that is drawn, too:
    `hits` mode has it. Left out: the request of 100 tokens that newer versions of the script send
    at each barrier."""

    SUMMARY = "SGLang's bench_multiturn.py: clients, rounds, request rate, round barrier"

    num_clients: int = _number("conversations at once", 256)
    num_rounds: int = _number("turns of each conversation", 5)
    request_tokens: int = _tokens("length of the first prompt", 512)
    sub_question_tokens: int = _tokens(
        "new tokens of each further turn; 0: as many as the first prompt has", 0, least=0
    )
    output_tokens: int = _tokens("generated tokens of a turn", 64)
    range_ratio: float = option("least length as a part of the longest", _part, "PART", default=1.0)
    request_rate: float = option("mean requests per second, or inf", _rate, "RATE", default=1.0)
    distribution: str = option(
        "of the pauses between requests: poisson or uniform",
        choice(DISTRIBUTIONS),
        "NAME",
        default="poisson",
    )
    max_parallel: int = _number("most requests in progress", 128)
    ready_queue_policy: str = option(
        "which ready turn is next: random or fifo", choice(POLICIES), "NAME", default="random"
    )
    enable_round_barrier: bool = option(
        "a turn waits until all earlier turns of all clients have ended", default=False
    )
    barrier_pause_ms: int = option(
        "pause between the rounds, with the barrier", _PAUSE, "MS", default=10_000
    )
    seed: int = _number("seed of order, pauses and lengths", 1, least=0)

    @property
    def question_tokens(self) -> int:
        """The new tokens of every turn but the first."""
        return self.sub_question_tokens or self.request_tokens

    @property
    def extent(self) -> tuple[int, int]:
        more = (self.num_rounds - 1) * self.question_tokens
        return (
            self.num_clients * self.num_rounds,
            self.request_tokens + more + self.num_rounds * self.output_tokens,
        )

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

    def records(self) -> Iterator[Record]:
        asked, answered = self._drawn()
        order = list(range(self.num_clients))
        shuffled = Random(self.seed)
        place = array("q", bytes(8 * self.num_clients))  # of the last turn of each client
        for turn in range(self.num_rounds):
            if self.ready_queue_policy == "random":
                shuffled.shuffle(order)
            for number, client in enumerate(order, start=turn * self.num_clients):
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

    def _drawn(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The new tokens and the answer of each turn of each client: [turn, client]. The script
        draws those of all first turns, then those of the others."""
        clients, rounds = self.num_clients, self.num_rounds
        most = [self.request_tokens] + [self.question_tokens] * (rounds - 1)
        if self.range_ratio == 1:
            columns = np.array([most, [self.output_tokens] * rounds])[:, :, None]
            asked, answered = np.broadcast_to(columns, (2, rounds, clients))
            return asked, answered
        if clients * rounds > _MOST_DRAWN:
            raise CallerError(
                f"--range-ratio {self.range_ratio:g}: expected at most {_MOST_DRAWN} requests "
                f"whose lengths are drawn, found {clients * rounds}; ask for less, or leave it at 1"
            )
        draw = _seeded(self.seed)
        parts: list[list[NDArray[np.int64]]] = [[], []]
        for tokens, turns in ((self.request_tokens, 1), (self.question_tokens, rounds - 1)):
            for found, longest in zip(parts, (tokens, self.output_tokens), strict=True):
                drawn = _lengths(draw, longest, self.range_ratio, turns * clients)
                found.append(drawn.reshape(turns, clients))
        return np.concatenate(parts[0]), np.concatenate(parts[1])


GENERATORS: dict[str, type[Generator]] = {
    "bench-multiturn": BenchMultiturn,
    "multiturn": Multiturn,
    "random-tree": RandomTree,
    "serving-random": ServingRandom,
    "serving-shared-prefix": ServingSharedPrefix,
    "shared-prefix": SharedPrefix,
}
