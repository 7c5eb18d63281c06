"""The tokens of a trace's pages: equal pages have equal tokens, others have others.

A page has an id in the trace, from which its tokens are drawn, the same in every run. Pages that a
request has generated have the tokens that the engine sampled: a later prompt that repeats them has
these.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from sim.engine.sequence import final_length
from sim.workload import Job

from ...formats.base import Paged

_PAGE, _TAIL = 0, 1  # what is drawn: a page of the trace, or the tokens after a prompt's last page


class Tokens:
    """Makes prompts of a trace in pages. vocabulary: tokens are below it."""

    def __init__(self, paged: Paged, vocabulary: int) -> None:
        self._paged = paged
        self._vocabulary = vocabulary
        self._generated: dict[int, list[int]] = {}  # by page

    def prompt(self, job: Job) -> list[int]:
        """The tokens of a request's prompt."""
        size, found = self._paged.page_size, list[int]()
        for page in self._prompt_pages(job):
            found += self._generated.get(page) or self._drawn(_PAGE, page, size)
        if len(found) < job.input_length:
            found += self._drawn(_TAIL, job.index, job.input_length - len(found))
        return found[: job.input_length]

    def sampled(self, job: Job, prompt: Sequence[int], generated: Sequence[int]) -> None:
        """What the engine has generated: the trace's pages that this fills have these tokens."""
        if not self._paged.knows_output:
            return
        size, stream = self._paged.page_size, [*prompt, *generated]
        chain = self._paged.chain(job)[: final_length(job) // size].tolist()
        for place in range(job.input_length // size, len(chain)):
            self._generated.setdefault(chain[place], stream[place * size : (place + 1) * size])

    def _prompt_pages(self, job: Job) -> list[int]:
        pages = int(self._paged.prompt_pages[job.index])
        found: list[int] = self._paged.chain(job)[:pages].tolist()
        return found

    def _drawn(self, what: int, number: int, count: int) -> list[int]:
        draw = np.random.Generator(np.random.PCG64([what, number]))
        drawn: list[int] = draw.integers(0, self._vocabulary, count).tolist()
        return drawn
