"""A trace, short enough for a small engine: each block of the file becomes one block of the engine.

Lengths are cut in proportion: a prompt of 6,758 tokens in blocks of 512 has 13 blocks and a part of
the next; in blocks of 32 it has as many, and as large a part: 423 tokens. Equal blocks stay equal.
Of long prompts only the first blocks are kept. Requests come in their order, so one that follows
another has the time of the request before it. The result is a Mooncake trace, so `hicache replay`
takes it too. A trace of tokens has no blocks and stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

from ...formats._open import parse
from ...formats.base import NS_PER_MS, Lines, Paged, Trace

FORMAT = "mooncake"


class Cut(NamedTuple):
    """block: tokens of a block of the engine. of: those of a block of the file. most_blocks: of a
    prompt; most_output: tokens that a request generates; 0: no limit."""

    block: int
    of: int
    most_blocks: int
    most_output: int

    def tokens(self, tokens: int) -> int:
        """So many tokens of the file in those of the engine, at least 1."""
        return max(1, -(-tokens * self.block // self.of))


def cut(trace: Trace, block: int, most_blocks: int, most_output: int) -> tuple[Trace, Cut, str]:
    """The trace, how it was cut, and its text; the text is empty where nothing was to be cut."""
    if trace.block_size is None:
        return trace, Cut(block, block, 0, 0), ""
    how = Cut(block, trace.block_size, most_blocks, most_output)
    text = "".join(f"{line}\n" for line in _lines(trace.paged(trace.block_size), how))
    lines = Lines(trace.path, iter(text.encode().splitlines(keepends=True)))
    return parse(lines, FORMAT, wanted_block_size=block), how, text


def _lines(paged: Paged, how: Cut) -> Iterator[str]:
    last_ns = 0
    for job in paged.jobs:
        last_ns = max(last_ns, job.arrival_ns) if job.after < 0 else last_ns
        ids = paged.chain(job)[: -(-job.input_length // how.of)].tolist()
        kept = ids[: how.most_blocks] if how.most_blocks else ids
        length = min(how.tokens(job.input_length), len(kept) * how.block)
        output = how.tokens(max(1, job.output_length))
        yield json.dumps(
            {
                "timestamp": last_ns / NS_PER_MS,
                "input_length": length,
                "output_length": min(output, how.most_output or output),
                "hash_ids": kept[: -(-length // how.block)],
            }
        )
