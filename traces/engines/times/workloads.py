"""Workloads of a real engine, drawn from a seed: those that are measured, and those that judge.

The two have no prompt and no length in common. Lengths follow from the longest prompt, and the load
of an open loop from how long the engine takes, so that the same workloads mean the same on a small
machine and on a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

MEASURED, JUDGED = 0, 1  # the first word of a seed
LOAD = 0.7  # of what the engine can do, in an open loop
_THINK_S = 0.05
_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class Request:
    """tokens: of the prompt, or with `extends` those after the prompt and the answer of the request
    `after`. at_s: when it is sent, or how long after the end of that request."""

    tokens: tuple[int, ...]
    max_tokens: int
    at_s: float = 0.0
    after: int = -1
    extends: bool = False

    @property
    def asked(self) -> dict[str, Any]:
        """As the process of the engine takes it."""
        return {
            "tokens": list(self.tokens),
            "max_tokens": self.max_tokens,
            "at_s": self.at_s,
            "after": self.after,
            "extends": self.extends,
        }


@dataclass(frozen=True, slots=True)
class Workload:
    """at_once: requests under way in a closed loop; 0 for arrivals at their times."""

    name: str
    requests: tuple[Request, ...]
    at_once: int = 0


@dataclass(slots=True)
class Draw:
    """vocabulary: tokens are below it. longest: tokens of the longest prompt. serve_s: seconds that
    the engine takes for so many prompt tokens and answered tokens, with others beside it."""

    seed: int
    vocabulary: int
    longest: int
    serve_s: Callable[[int, int], float]
    _rng: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self._rng = np.random.Generator(np.random.PCG64([JUDGED, self.seed]))

    def tokens(self, count: int) -> tuple[int, ...]:
        """New ones."""
        return tuple(self._rng.integers(0, self.vocabulary, count).tolist())

    def length(self, least: float, most: float) -> int:
        """A length between two parts of the longest prompt."""
        return int(self._rng.integers(int(least * self.longest), int(most * self.longest) + 1))

    def answer(self) -> int:
        return int(self._rng.integers(8, 33))

    def request(self, least: float = 0.1, most: float = 1.0) -> Request:
        return Request(self.tokens(self.length(least, most)), self.answer())

    def spread(self, requests: list[Request], load: float = LOAD) -> tuple[Request, ...]:
        """The same with arrivals of a Poisson process, so that the engine has this much to do."""
        work = [self.serve_s(len(one.tokens), one.max_tokens) for one in requests]
        gaps = self._rng.exponential(sum(work) / len(work) / load, len(work))
        times = np.cumsum(gaps) - gaps[0]
        return tuple(replace(one, at_s=float(at)) for one, at in zip(requests, times, strict=True))


def judged(draw: Draw, count: int) -> Iterator[Workload]:
    """The workloads that judge. count: requests of each, about."""
    requests = [draw.request() for _ in range(count)]
    yield Workload("open loop", draw.spread(requests))
    yield Workload("closed loop", tuple(draw.request() for _ in range(count)), _AT_ONCE)
    yield Workload("multi-turn", _turns(draw, max(2, count // 4), 4))
    shared = _shared(draw, count, max(2, count // 6))
    yield Workload("shared prefixes", draw.spread(shared, 2 * LOAD))


def host_tier(draw: Draw, count: int) -> Iterator[Workload]:
    """Those that judge an engine with a host tier: more than its device holds comes again."""
    shared = _shared(draw, count, max(2, count // 3))
    yield Workload("shared prefixes", draw.spread(shared, 1.5 * LOAD))
    yield Workload("multi-turn", _turns(draw, max(2, count // 3), 3))


def _turns(draw: Draw, sessions: int, turns: int) -> tuple[Request, ...]:
    """Sessions whose turns follow each other: each prompt is all that was said before, and more."""
    found: list[Request] = []
    first = draw.spread([draw.request(0.2, 0.4) for _ in range(sessions)])
    found += first
    for turn in range(1, turns):
        for session in range(sessions):
            tokens = draw.tokens(draw.length(0.04, 0.12))
            after = (turn - 1) * sessions + session
            found.append(Request(tokens, draw.answer(), _THINK_S, after, True))
    return tuple(found)


def _shared(draw: Draw, count: int, documents: int) -> list[Request]:
    """Questions about some documents."""
    texts = [draw.tokens(draw.length(0.5, 0.7)) for _ in range(documents)]
    found = []
    for place in range(count):
        question = draw.tokens(draw.length(0.02, 0.2))
        found.append(Request(texts[place % documents] + question, draw.answer()))
    return found


def measured(vocabulary: int, longest: int, most_running: int, repeats: int) -> Iterator[Workload]:
    """The runs that a profile is made of: prompts by length, what follows a cached prefix, two
    prompts in a pass, decoding by batch and by context, and prompts beside decoding."""
    rng = np.random.Generator(np.random.PCG64([MEASURED, 0]))

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(rng.integers(0, vocabulary, count).tolist())

    for _ in range(repeats):
        length = 16
        lengths = [longest]
        while length < longest:
            lengths.append(length)
            length *= 2
        yield Workload("prefill", tuple(Request(tokens(one), 1) for one in lengths), 1)
        prefix = tokens(longest // 2)
        parts = (0, longest // 32, longest // 8, longest // 2)
        cached = tuple(Request(prefix + tokens(one + 1), 1) for one in parts)
        yield Workload("cached prefix", cached, 1)
        pairs = [Request(tokens(longest // part), 1) for part in (4, 4, 8, 16)]
        yield Workload("prompts together", tuple(pairs))
        batch = 1
        while batch <= min(16, most_running):
            decoding = tuple(Request(tokens(24), 9) for _ in range(batch))
            yield Workload(f"decode {batch}", decoding)
            batch *= 2
        for batch in (1, min(6, most_running)):
            decoding = tuple(Request(tokens(longest * 3 // 4), 9) for _ in range(batch))
            yield Workload(f"decode {batch} long", decoding)
        beside = [Request(tokens(40 + 90 * place), 12) for place in range(10)]
        yield Workload("beside", tuple(beside), 3)
