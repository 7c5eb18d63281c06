"""The dataset `generated-shared-prefix` of SGLang's bench_serving.py, run once or several times.

Each group has a system prompt, and its prompts append one question each. All prompts are sent in
random order, the same in each run, as the script's seed does. A further run begins when the one
before it has ended, a second later as in the script; its questions are the same, so that it shows
what the cache kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from hicache.core.errors import CallerError
from sim.sending import SenderOptions
from traces.formats.base import Record
from traces.generators.base import Extent

from . import _rates

SUMMARY = "SGLang's bench_serving.py, dataset generated-shared-prefix, repeated"

_PAUSE_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Options(_rates.Options):
    gsp_num_groups: int = _rates.number("system prompts", 64)
    gsp_prompts_per_group: int = _rates.number("questions of each of them", 16)
    gsp_system_prompt_tokens: int = _rates.number("length of one", 2048)
    gsp_question_tokens: int = _rates.tokens("length of a question", 128)
    gsp_output_tokens: int = _rates.tokens("generated tokens of an answer", 256)
    runs: int = _rates.number("times the benchmark is run, one after another", 1)


def extent(options: Options) -> Extent:
    requests = options.gsp_num_groups * options.gsp_prompts_per_group * options.runs
    lengths = (
        options.gsp_system_prompt_tokens,
        options.gsp_question_tokens,
        options.gsp_output_tokens,
    )
    names = len(f"{options.gsp_num_groups * 3}{options.gsp_prompts_per_group * 2}{lengths}")
    return Extent(requests, requests * (55 + names), sum(lengths))


def sender(options: Options) -> SenderOptions | None:
    if options.runs == 1:
        return _rates.sender_of(options.max_concurrency)
    return SenderOptions(max_parallel=options.max_concurrency, barrier=True, pause_ns=_PAUSE_NS)


def records(options: Options) -> Iterator[Record]:
    if options.runs > 1 and options.request_rate != math.inf:
        raise CallerError(
            f"--runs {options.runs}: expected --request-rate inf, found "
            f"{options.request_rate:g}; run it once, or send each run at once"
        )
    groups, prompts = options.gsp_num_groups, options.gsp_prompts_per_group
    order = list(range(groups * prompts))
    Random(options.seed).shuffle(order)
    times = _rates.arrivals_ms(_rates.seeded(options.seed), options.request_rate, len(order))
    for run in range(options.runs):
        for place, number in enumerate(order):
            group, prompt = divmod(number, prompts)
            # one request of the run before: the barrier waits for the others
            before = (
                {"after": (run - 1) * len(order)} if run else {"timestamp": float(times[place])}
            )
            yield {
                **before,
                "session": f"{run}.{number}",
                "input": [
                    [f"s{group}", options.gsp_system_prompt_tokens],
                    [f"q{group}.{prompt}", options.gsp_question_tokens],
                ],
                "output": [f"a{group}.{prompt}.{run}", options.gsp_output_tokens],
            }
