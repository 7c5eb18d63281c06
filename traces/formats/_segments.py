"""A trace of tokens: the segments of streams that its requests have, as branches, and their pages.

Lives here: the columns, and pages of any size. Does not read files; see native.

    token id = stream number << 24 | offset        streams numbered in order of appearance
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import NO_PAGES, Key, Pages
from sim.workload import Job

from ._jobs import Chains, Jobs, Tenants
from .base import Measured

Segment: TypeAlias = tuple[int, int]  # number of the stream, tokens

_OFFSET_BITS = 24
_LENGTH_BITS = 25


class Tokens:
    """The tokens of all requests: the segments of each prompt, then the segment of its output.

    A stream after one prefix is a *branch*. The branches and lengths of the segments of request i
    are in `branches` and `lengths` from starts[i] to starts[i + 1]. Equal branches mean equal
    streams after equal tokens. Of each branch: its stream, the token at which it begins, and the
    most tokens of it that a cache holds: the last one of an output has no KV.
    """

    def __init__(self) -> None:
        self.branches = array("i")
        self.lengths = array("i")
        self.starts = array("q", [0])
        self.namespaces: list[str] = []
        self.streams = array("q")
        self.first_tokens = array("i")
        self.longest = array("i")
        self._namespace = array("i")
        self._numbers: dict[str, int] = {}

    def add(self, segments: Sequence[Segment], namespace: str, chains: Chains) -> None:
        """Appends a request. chains: the branches by what is before them."""
        root = self._numbers.setdefault(namespace, len(self._numbers))
        if root == len(self.namespaces):
            self.namespaces.append(namespace)
        self._namespace.append(root)
        before, first, left = -1 - root, 0, len(segments)
        branches, lengths, longest, number = (
            self.branches,
            self.lengths,
            self.longest,
            chains.number,
        )
        for stream, length in segments:
            branch = number(before, stream)
            left -= 1
            held = length if left else length - 1
            if branch == len(longest):
                self.streams.append(stream)
                self.first_tokens.append(first)
                longest.append(held)
            elif held > longest[branch]:
                longest[branch] = held
            branches.append(branch)
            lengths.append(length)
            before = branch << _LENGTH_BITS | length
            first += length
        self.starts.append(len(self.branches))

    def namespace(self, index: int) -> str:
        return self.namespaces[self._namespace[index]]


class NativeTrace:
    """Requests as segments. Segments are expanded to tokens when a key is asked for."""

    format = "native"
    identity = True
    block_size = None
    notes: Sequence[str] = ()
    measured = Measured()

    def __init__(
        self,
        path: str,
        jobs: Jobs,
        line_numbers: Sequence[int],
        tokens: Tokens,
        tenants: Tenants,
    ) -> None:
        self.path = path
        self.jobs = jobs
        self.line_numbers = line_numbers
        self.tokens = tokens
        self._tenants = tenants

    @property
    def tenants(self) -> NDArray[np.int32]:
        return self._tenants.numbers

    @property
    def tenant_names(self) -> tuple[str, ...]:
        return self._tenants.names

    def paged(self, page_size: int) -> NativePages:
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}; use 64")
        return NativePages(self, page_size)


class NativePages:
    """The trace in pages of `page_size` tokens.

    A page belongs to the branch in which it ends. The pages of branch b have the ids from
    `_first_ids[b]` on, so that equal ids mean equal pages after equal prefixes.
    """

    knows_output = True

    def __init__(self, trace: NativeTrace, page_size: int) -> None:
        self.page_size = page_size
        self.jobs = trace.jobs
        self._tokens = tokens = trace.tokens
        self._branches, self._lengths = np.asarray(tokens.branches), np.asarray(tokens.lengths)
        self._streams = np.asarray(tokens.streams) << _OFFSET_BITS
        first = np.asarray(tokens.first_tokens)
        pages = (first + np.asarray(tokens.longest)) // page_size - first // page_size
        self._first_ids = np.cumsum(pages, dtype=np.int64) - pages
        self._last: tuple[int, Pages] = -1, NO_PAGES
        self.prompt_pages = trace.jobs.input_lengths.astype(np.int64) // page_size

    def key(self, job: Job, length: int) -> Key:
        index, tokens = self._last
        if index != job.index:  # a request is usually asked for several lengths in a row
            branches, ends = self._segments(job)
            tokens = spans(self._streams[branches], ends)
            self._last = job.index, tokens
        if length > len(tokens):
            raise CallerError(
                f"request {job.index}: expected a length within its {len(tokens)} tokens, found "
                f"{length}"
            )
        return Key.from_tokens(tokens[:length], self.page_size, self._tokens.namespace(job.index))

    def prompt_key(self, job: Job) -> Key:
        return self.key(job, job.input_length)

    def chain(self, job: Job) -> Pages:
        branches, ends = self._segments(job)
        cached = np.minimum(ends, job.input_length + job.output_length - 1)
        return spans(self._first_ids[branches], cached // self.page_size)

    def _segments(self, job: Job) -> tuple[NDArray[np.int32], Pages]:
        """The branches of a request, and the token after each."""
        starts = self._tokens.starts
        part = slice(starts[job.index], starts[job.index + 1])
        return self._branches[part], np.cumsum(self._lengths[part], dtype=np.int64)


def spans(firsts: Pages, ends: Pages) -> Pages:
    """The numbers from each of `firsts` on, one run after another. ends: the place after each."""
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1]
    counts = ends - starts
    spans: Pages = np.repeat(firsts - starts, counts) + np.arange(ends[-1], dtype=np.int64)
    return spans
