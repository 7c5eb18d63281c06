"""Random walks down a random tree of prompts: every depth of sharing, and splits at odd places.

A request walks down from the root, each time to one of `fanout` children (low numbers more often),
and cuts the last segment at a random token. Some requests continue the answer of an earlier request
instead. Arrivals are a Poisson process (open loop). The workload tests a cache; it does not
resemble a service.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traces.formats.base import Record
from traces.generators.base import Extent
from traces.terminal.options import OptionRecord, at_least
from traces.terminal.rows import option

SUMMARY = "random walks down a tree of prompts, open loop; for stress, not realism"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    requests: int = option("number of requests", at_least(1), default=1000)
    depth: int = option("longest walk, in segments", at_least(1), default=6)
    fanout: int = option("children of each tree node", at_least(1), default=4)
    segment_tokens: int = option("longest segment", at_least(1), default=512)
    output_tokens: int = option("longest answer", at_least(1), default=64)
    rate: int = option("mean arrivals per second", at_least(1), default=20)
    follow_percent: int = option("requests that follow an answer", at_least(0), default=25)
    seed: int = option("seed of all random draws", at_least(0), default=0)


def extent(options: Options) -> Extent:
    segments = 2 * options.depth + 1  # at most, in a prompt that follows answers
    usual = options.depth / 2
    path = options.depth * len(f"{options.fanout}.") // 2
    name = len(f'["t", {options.segment_tokens}], ') + path
    return Extent(
        options.requests,
        int(options.requests * (70 + usual * name)),
        segments * max(options.segment_tokens, options.output_tokens) + options.output_tokens,
    )


def sender(options: Options) -> None:
    return None


def records(options: Options) -> Iterator[Record]:
    draw = np.random.default_rng([options.seed, 2])
    lengths: dict[str, int] = {}
    # only recent requests are continued, so memory and prompts stay bounded
    latest: list[list[list[str | int]]] = []
    now_us = 0
    for index in range(options.requests):
        now_us += round(draw.exponential(1e6 / options.rate))
        if latest and int(draw.integers(100)) < options.follow_percent:
            prompt = [*latest[int(draw.integers(len(latest)))]]
            prompt.append([f"f{index}", int(draw.integers(1, options.segment_tokens + 1))])
        else:
            prompt = _walk(draw, options, lengths)
        answer: list[str | int] = [f"a{index}", int(draw.integers(1, options.output_tokens + 1))]
        if len(prompt) < 2 * options.depth:
            latest = [*latest[-15:], [*prompt, answer]]
        yield {"timestamp": now_us // 1000, "input": prompt, "output": answer}


def _walk(
    draw: np.random.Generator, options: Options, lengths: dict[str, int]
) -> list[list[str | int]]:
    path = "t"
    prompt: list[list[str | int]] = []
    for _ in range(int(draw.integers(1, options.depth + 1))):
        # the smaller of two draws, so low numbers are more frequent
        child = int(draw.integers(options.fanout, size=2).min())
        path = f"{path}.{child}"
        length = int(draw.integers(1, options.segment_tokens + 1))
        prompt.append([path, lengths.setdefault(path, length)])
    last = prompt[-1]
    prompt[-1] = [last[0], int(draw.integers(1, lengths[str(last[0])] + 1))]
    return prompt
