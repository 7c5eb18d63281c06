"""A trace of many block accesses in Mooncake's format, for the cost of `hicache curve`.

    python -m tests.bench.many_blocks 10000000 > blocks.jsonl

Conversations in random order over a few system prompts: each request repeats the blocks of its
conversation and adds one to four. A conversation ends near 48 blocks, and a new one takes its
place. Ids count on in the order of first use, as in Mooncake's traces.
The same count gives the same trace.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

BLOCK = 512
_ACTIVE, _LONGEST, _PROMPTS = 4_000, 48, 16


def lines(accesses: int) -> Iterator[str]:
    draw = np.random.default_rng(7)
    fresh = iter(range(1 << 40))
    prompts: dict[int, int] = {}  # the block of each system prompt
    active: list[list[int]] = [[] for _ in range(_ACTIVE)]
    done = request = 0
    while done < accesses:
        for which, more in draw.integers((0, 1), (_ACTIVE, 5), size=(1 << 12, 2)).tolist():
            blocks = active[which]
            if not blocks or len(blocks) + more > _LONGEST:
                prompt = request % _PROMPTS
                if prompt not in prompts:
                    prompts[prompt] = next(fresh)
                blocks = active[which] = [prompts[prompt]]
            blocks.extend(next(fresh) for _ in range(more))
            yield (
                f'{{"timestamp": {request * 10}, "input_length": {len(blocks) * BLOCK}, '
                f'"output_length": 1, "hash_ids": {blocks}}}\n'
            )
            request += 1
            done += len(blocks)
            if done >= accesses:
                return


if __name__ == "__main__":
    sys.stdout.writelines(lines(int(sys.argv[1])))
