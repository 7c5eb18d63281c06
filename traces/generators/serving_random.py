"""The dataset `random` of SGLang's bench_serving.py: unique prompts of drawn lengths.

The lengths are those of the script: its seed gives the totals that it prints. The text is not: here
no two prompts begin alike, while the script cuts them from ShareGPT conversations.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from sim.sending import SenderOptions
from traces.formats.base import Record
from traces.generators.base import Extent
from traces.terminal.options import OptionRecord

from . import _rates

SUMMARY = "SGLang's bench_serving.py, dataset random: unique prompts of drawn lengths"


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    num_prompts: int
    random_input_tokens: int
    random_output_tokens: int
    random_range_ratio: float
    request_rate: float
    max_concurrency: int
    seed: int


def add_options(parser: argparse.ArgumentParser) -> None:
    _rates.number(parser, "--num-prompts", 1000, "number of requests")
    _rates.tokens(parser, "--random-input-tokens", 1024, "longest prompt")
    _rates.tokens(parser, "--random-output-tokens", 1024, "longest answer")
    add, says = parser.add_argument, "least length as a part of the longest"
    add("--random-range-ratio", metavar="PART", type=_rates.part, default=0.0, help=says)
    _rates.add_options(parser)


def extent(options: Options) -> Extent:
    longest = options.random_input_tokens + options.random_output_tokens
    return Extent(options.num_prompts, options.num_prompts * 80, longest)


def sender(options: Options) -> SenderOptions | None:
    return _rates.sender_of(options.max_concurrency)


def records(options: Options) -> Iterator[Record]:
    draw, count = _rates.seeded(options.seed), options.num_prompts
    ratio = options.random_range_ratio
    prompts = _rates.lengths(draw, options.random_input_tokens, ratio, count)
    answers = _rates.lengths(draw, options.random_output_tokens, ratio, count)
    times = _rates.arrivals_ms(draw, options.request_rate, count)
    for number, (time, prompt, answer) in enumerate(zip(times, prompts, answers, strict=True)):
        yield {
            "timestamp": float(time),
            "input": [[f"p{number}", int(prompt)]],
            "output": [f"a{number}", int(answer)],
        }
