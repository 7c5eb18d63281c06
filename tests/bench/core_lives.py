"""Lives of the expanded conversation trace in one core, alone: `python -m tests.bench.core_lives`.

    python -m tests.bench.core_lives TRACE

For each line of its input, a number, it plays so many lives and prints the nanoseconds of CPU time
of each as a JSON list; so several processes can take turns. With HICACHE_BUILD=compiled the core is
the compiled one. Building keys is the caller's work and not timed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from time import thread_time_ns
from typing import Any

import numpy as np

from hicache.core.actions import Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import AdmitWanted, Arrived, Finished, PagesWanted, PrefillDone
from hicache.core.types import Key

BLOCK, PAGE, POOL_TOKENS = 512, 64, 3_000_000
WHOLE = 1 << 40


def one_life(core: Core, request: int, prompt: Key, length: int, final: Key, end: int) -> None:
    """Match, lock, take (evicting), insert the prompt, grow, insert the whole, unlock."""
    handle = core.handle
    handle(Arrived(request, prompt, length, (length - 1) // 64))
    prefill = handle(AdmitWanted(request, WHOLE))[-1]
    assert isinstance(prefill, Prefill)
    handle(PrefillDone(prefill.flight))
    handle(PagesWanted(request, end))
    handle(Finished(request, final, end))


def prompts(trace: Path) -> Iterator[tuple[Any, Any]]:
    """The tokens of each prompt, and those of the prompt and the output without its last token."""
    for index, line in enumerate(trace.read_text().splitlines()):
        entry = json.loads(line)
        blocks = np.array(entry["hash_ids"], dtype=np.int64)
        tokens = (blocks[:, None] * BLOCK + np.arange(BLOCK)).ravel()[: entry["input_length"]]
        output = np.arange(entry["output_length"], dtype=np.int64) + (index + 1) * (1 << 40)
        yield tokens, np.concatenate((tokens, output))[:-1]


def player() -> Callable[[int, Any, Any], int]:
    """Plays one life in a core of this project; returns its nanoseconds of CPU time."""
    core = Core(Config(page_size=PAGE, device_pages=(POOL_TOKENS // PAGE,)))

    def play(index: int, prompt: Any, everything: Any) -> int:
        keys = Key.from_tokens(prompt, PAGE), Key.from_tokens(everything, PAGE)
        start = thread_time_ns()
        one_life(core, index, keys[0], len(prompt), keys[1], len(everything))
        return thread_time_ns() - start

    return play


if __name__ == "__main__":
    play = player()
    lives = enumerate(prompts(Path(sys.argv[1])))
    for turn in sys.stdin:
        some = islice(lives, int(turn))
        print(json.dumps([play(index, *tokens) for index, tokens in some]), flush=True)
