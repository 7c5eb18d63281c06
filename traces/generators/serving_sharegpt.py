"""Unique prompts with the lengths of ShareGPT conversations, as bench_serving.py sends them.

The conversations themselves are not part of this project. `--lengths FILE` takes the lengths from a
file with a prompt's and an answer's tokens on each line. Without it they are drawn: exponential,
with the means 161.31 and 337.99 tokens that the vLLM paper gives for ShareGPT (Kwon et al., SOSP
2023, figure 11). The paper gives the means; the shape is our assumption. Like the script, this
leaves out what is shorter than 2 tokens, and prompts above 1,024 or sums above 2,048 tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from hicache.core.errors import CallerError
from sim.sending import SenderOptions
from traces.formats.base import Record, shorten
from traces.generators.base import Extent
from traces.terminal.rows import option

from . import _rates

SUMMARY = "SGLang's bench_serving.py with ShareGPT's lengths, given or drawn"

_MEAN_PROMPT, _MEAN_ANSWER = 161.31, 337.99
_LEAST, _MOST_PROMPT, _MOST_BOTH = 2, 1024, 2048


@dataclass(frozen=True, slots=True)
class Options(_rates.Options):
    num_prompts: int = _rates.number("number of requests", 1000)
    lengths: str = option(
        "a line for each conversation: tokens of prompt and answer; else they are drawn",
        str,
        "FILE",
        default="",
    )

    @property
    def files(self) -> dict[str, str]:
        return {"file of lengths": self.lengths}


def extent(options: Options) -> Extent:
    return Extent(options.num_prompts, options.num_prompts * 80, _MOST_BOTH)


def sender(options: Options) -> SenderOptions | None:
    return _rates.sender_of(options.max_concurrency)


def records(options: Options) -> Iterator[Record]:
    draw = _rates.seeded(options.seed)
    found = _given(options) if options.lengths else _drawn(draw)
    times = _rates.arrivals_ms(draw, options.request_rate, options.num_prompts)
    for number, (time, (prompt, answer)) in enumerate(zip(times, found, strict=False)):
        yield {
            "timestamp": float(time),
            "input": [[f"p{number}", prompt]],
            "output": [f"a{number}", answer],
        }


def _usable(prompt: int, answer: int) -> bool:
    together = prompt + answer <= _MOST_BOTH
    return min(prompt, answer) >= _LEAST and prompt <= _MOST_PROMPT and together


def _drawn(draw: np.random.RandomState) -> Iterator[tuple[int, int]]:
    while True:
        prompt, answer = (round(draw.exponential(mean)) for mean in (_MEAN_PROMPT, _MEAN_ANSWER))
        if _usable(prompt, answer):
            yield prompt, answer


def _given(options: Options) -> list[tuple[int, int]]:
    """The lengths of a file in random order. Raises CallerError with the line."""
    found = []
    try:
        text = Path(options.lengths).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "bytes that are no UTF-8"
        raise CallerError(
            f"--lengths {options.lengths}: expected a text file, found: {reason}; name another file"
        ) from None
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.replace(",", " ").split()
        if len(words) != 2 or not all(word.isdecimal() and len(word) < 9 for word in words):
            raise CallerError(
                f"{options.lengths}:{number}: expected two whole numbers, the tokens of prompt "
                f"and answer, found {shorten(line.strip())}; correct the line"
            )
        prompt, answer = map(int, words)
        if _usable(prompt, answer):
            found.append((prompt, answer))
    if len(found) < options.num_prompts:
        raise CallerError(
            f"{options.lengths}: expected {options.num_prompts} usable conversations, found "
            f"{len(found)}; ask for fewer (--num-prompts), or give a longer file"
        )
    Random(options.seed).shuffle(found)
    return found
