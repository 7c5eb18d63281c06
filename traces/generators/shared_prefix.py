"""Groups of questions that share long system prompts, asked in rounds by a fixed set of workers.

Each group has one system prompt and `prompts` questions. A round asks every question of every group
once, in random order; the next round asks the same questions again. A worker sends a request when
its previous one has ended. The first round fills the cache. Later rounds show how much of it the
tiers kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from traces.formats.base import Record
from traces.generators.base import Extent
from traces.terminal.options import OptionRecord, at_least
from traces.terminal.rows import option

SUMMARY = "groups of questions after shared system prompts, the same in each round"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    groups: int = option("system prompts", at_least(1), default=128)
    prompts: int = option("questions after each system prompt", at_least(1), default=16)
    rounds: int = option("times every question is asked", at_least(1), default=3)
    system_tokens: int = option("length of a system prompt", at_least(1), default=4096)
    question_tokens: int = option("length of a question", at_least(1), default=512)
    output_tokens: int = option("generated tokens of an answer", at_least(1), default=128)
    workers: int = option("requests in progress at once", at_least(1), default=32)
    seed: int = option("seed of the order of each round", at_least(0), default=0)


def extent(options: Options) -> Extent:
    requests = options.groups * options.prompts * options.rounds
    lengths = (options.system_tokens, options.question_tokens, options.output_tokens)
    names = len(f"{requests}{options.groups * 3}{options.prompts * 2}{options.rounds}{lengths}")
    return Extent(requests, requests * (60 + names), sum(lengths))


def sender(options: Options) -> None:
    return None


def records(options: Options) -> Iterator[Record]:
    draw = np.random.default_rng([options.seed, 1])
    index = 0
    for turn in range(options.rounds):
        for place in draw.permutation(options.groups * options.prompts):
            group, prompt = divmod(int(place), options.prompts)
            start: Record = {"timestamp": 0}
            if index >= options.workers:
                start = {"after": index - options.workers}
            yield {
                **start,
                "input": [
                    [f"s{group}", options.system_tokens],
                    [f"q{group}.{prompt}", options.question_tokens],
                ],
                "output": [f"a{group}.{prompt}.{turn}", options.output_tokens],
            }
            index += 1
