"""The dataset `random` of SGLang's bench_serving.py: unique prompts of drawn lengths.

The lengths are those of the script: its seed gives the totals that it prints. The text is not: here
no two prompts begin alike, while the script cuts them from ShareGPT conversations.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sim.sending import SenderOptions
from traces.formats.base import Record
from traces.generators.base import Extent
from traces.terminal.rows import option

from . import _rates

SUMMARY = "SGLang's bench_serving.py, dataset random: unique prompts of drawn lengths"


@dataclass(frozen=True, slots=True)
class Options(_rates.Options):
    num_prompts: int = _rates.number("number of requests", 1000)
    random_input_tokens: int = _rates.tokens("longest prompt", 1024)
    random_output_tokens: int = _rates.tokens("longest answer", 1024)
    random_range_ratio: float = option(
        "least length as a part of the longest", _rates.part, "PART", default=0.0
    )


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
