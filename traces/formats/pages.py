"""The tokens of a trace in pages, made of blocks or of segments of streams.

Ids of blocks are chained again, in the order of their first use, so a file whose ids are not
chained is read correctly. A page that is smaller than a block is identified by its block and its
place in it; a page of several blocks by its last block:

    page id = block * (block size / page size) + place        or the number of the page's last block
    pages that the trace does not identify: -1 - (row << 32 | page), which no other request shares
    token id = stream number << 24 | offset        streams numbered in order of appearance
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import NO_PAGES, Key, Pages
from sim.workload import Job

from .base import Trace

MOST = (1 << 31) - 1  # different blocks: numbers are stored in 32 bits
_ELSEWHERE = -(1 << 31)
_ID_BITS = 66  # an id, signed or unsigned, of 64 bits and an offset of 32
_LEAST = 1 << 64
_OFFSET_BITS = 24
_LENGTH_BITS = 25

Segment: TypeAlias = tuple[int, int]  # number of the stream, tokens


class Chains:
    """Numbers for chained ids: equal numbers mean equal ids after equal prefixes.

    Most files number their ids 0, 1, 2, ... in the order of first use, and use each after one
    prefix only; these need a few bytes an id, others a place in a dictionary. typecode: of the
    array that holds what is before each number.
    """

    def __init__(self, typecode: str = "i") -> None:
        self._before = array(typecode)  # by number: what is before the id of the same number
        self._others: dict[int, int] = {}  # numbers of other ids, by what is before and the id

    def __len__(self) -> int:
        return len(self._before)

    def number(self, before: int, id_: int) -> int:
        """The number of this id after the prefix `before`, which is a number or stands for one and
        is not -2**31. Raises OverflowError when the numbers are used up."""
        count = len(self._before)
        if 0 <= id_ < count and self._before[id_] == before:
            return id_
        key = before << _ID_BITS | id_ + _LEAST
        known = self._others.get(key) if self._others else None
        if known is not None:
            return known
        if count == MOST:
            raise OverflowError
        counts_on = id_ == count
        self._before.append(before if counts_on else _ELSEWHERE)
        if not counts_on:
            self._others[key] = count
        return count


class Blocks:
    """The blocks of all rows as numbers in one column. Equal numbers: equal after equal blocks."""

    def __init__(self) -> None:
        self.flat = array("i")
        self.starts = array("q", [0])
        self._chains = Chains()
        self._scopes: dict[str, tuple[int, int]] = {}  # (root, what is added to its ids)

    def add(self, ids: Sequence[int], scope: str) -> None:
        """Raises OverflowError if there are too many different blocks."""
        if ids:
            known = self._scopes.get(scope)
            if known is None:
                # the ids of a scope often begin anywhere and count on; then they need no dictionary
                added = min(len(self._chains) - ids[0], 1 << 31)
                known = -1 - len(self._scopes), max(added, -(1 << 31))
                self._scopes[scope] = known
            number, (before, added) = self._chains.number, known
            for id_ in ids:
                before = number(before, id_ + added)
                self.flat.append(before)
        self.starts.append(len(self.flat))


class BlockTrace(Trace):
    """Requests as blocks, or with lengths only. order: of the rows of `blocks`, the one of each
    request: its place in the file, however much of that is read. how: tokens of a block, 0 if there
    are none; identity; whether it covers answers; whether a request may end with the id of a
    partial block."""

    def __init__(
        self,
        blocks: Blocks,
        order: NDArray[np.int64],
        how: tuple[int, bool, bool, bool],
        *columns: Any,
    ) -> None:
        super().__init__(*columns)
        size, self.identity, self.knows_output, self.partial = how
        self.block_size = size or None
        self._flat, ends = np.asarray(blocks.flat), np.asarray(blocks.starts)
        self.starts, self.ends, self.rows = ends[:-1][order], ends[1:][order], order

    def blocks(self, job: Job) -> NDArray[np.int32]:
        return self._flat[self.starts[job.index] : self.ends[job.index]]

    def paged(self, page_size: int) -> BlockPages:
        size = self.block_size or page_size
        if page_size < 1 or (size % page_size and page_size % size):
            divisors = ", ".join(str(index) for index in range(1, size + 1) if size % index == 0)
            raise CallerError(
                f"{self.path}: expected a page size that divides its {size}-token blocks, or a "
                f"multiple of it, found {page_size}; use one of {divisors}"
            )
        return BlockPages(self, page_size)


class BlockPages:
    """Such a trace in pages of `page_size` tokens: a divisor or a multiple of the block size."""

    def __init__(self, trace: BlockTrace, page_size: int) -> None:
        self.page_size = page_size
        self.jobs = trace.jobs
        self.knows_output = trace.knows_output
        size = trace.block_size or page_size
        self._trace = trace
        self._per_block = size // page_size  # 0 for pages of several blocks
        self._per_page = max(1, page_size // size)
        prompts = trace.jobs.input_lengths.astype(np.int64)
        cached = prompts + trace.jobs.output_lengths - 1
        identified = (trace.ends - trace.starts) * size
        self._known = np.minimum(cached if self.knows_output else prompts, identified) // page_size
        prompt = np.minimum(prompts, identified)
        self.prompt_pages = prompt // page_size if self.knows_output else -(-prompt // page_size)

    def key(self, job: Job, length: int) -> Key:
        pages = length // self.page_size
        known = min(pages, int(self._known[job.index]))
        ids = self._pages(job, known)
        if pages > known:
            row = int(self._trace.rows[job.index])
            unique = -1 - (row << 32 | np.arange(known, pages, dtype=np.int64))
            ids = np.concatenate((ids, unique))
        return Key.from_page_ids(ids)

    def prompt_key(self, job: Job) -> Key:
        return Key.from_page_ids(self._pages(job, int(self.prompt_pages[job.index])))

    def chain(self, job: Job) -> Pages:
        pages = self._known if self.knows_output else self.prompt_pages
        return self._pages(job, int(pages[job.index]))

    def _pages(self, job: Job, pages: int) -> Pages:
        if not pages:
            return NO_PAGES
        blocks = self._trace.blocks(job)
        if not self._per_block:
            last = np.arange(1, pages + 1, dtype=np.int64) * self._per_page - 1
            return blocks[np.minimum(last, len(blocks) - 1)].astype(np.int64)
        if self._per_block == 1:
            return blocks[:pages].astype(np.int64)
        return (blocks[:, None] * np.int64(self._per_block) + np.arange(self._per_block)).ravel()[
            :pages
        ]


class Segments:
    """The tokens of all requests: the segments of each prompt, then the segment of its output.

    A stream after one prefix is a *branch*: equal branches mean equal streams after equal tokens.
    Request i has those from starts[i] to starts[i + 1]. Of each branch: its stream, the token at
    which it begins, and the most of it that a cache holds: the last one of an output has no KV.
    """

    def __init__(self) -> None:
        self.branches, self.lengths = array("i"), array("i")
        self.starts = array("q", [0])
        self.streams, self.first_tokens, self.longest = array("q"), array("i"), array("i")
        self.namespaces: list[str] = []  # of each request
        self._numbers: dict[str, int] = {}
        self._chains = Chains("q")

    def add(self, segments: Sequence[Segment], namespace: str) -> None:
        """Appends a request. Raises OverflowError if there are too many different branches."""
        root = self._numbers.setdefault(namespace, len(self._numbers))
        self.namespaces.append(namespace)
        before, first, left = -1 - root, 0, len(segments)
        longest, number = self.longest, self._chains.number
        for stream, length in segments:
            branch = number(before, stream)
            left -= 1
            kept = length if left else length - 1
            if branch == len(longest):
                self.streams.append(stream)
                self.first_tokens.append(first)
                longest.append(kept)
            elif kept > longest[branch]:
                longest[branch] = kept
            self.branches.append(branch)
            self.lengths.append(length)
            before = branch << _LENGTH_BITS | length
            first += length
        self.starts.append(len(self.branches))

    def of(self, index: int) -> Iterator[Segment]:
        """The segments of a request."""
        for place in range(self.starts[index], self.starts[index + 1]):
            yield self.streams[self.branches[place]], self.lengths[place]


class SegmentTrace(Trace):
    """Requests as segments. Segments are expanded to tokens when a key is asked for."""

    def __init__(self, segments: Segments, *columns: Any) -> None:
        super().__init__(*columns)
        self.segments = segments

    def paged(self, page_size: int) -> SegmentPages:
        if page_size < 1:
            raise CallerError(f"page_size: expected at least 1, found {page_size}; use 64")
        return SegmentPages(self, page_size)


class SegmentPages:
    """Such a trace in pages. A page belongs to the branch in which it ends. The pages of branch b
    have the ids from `_first_ids[b]` on, so equal ids mean equal pages after equal prefixes."""

    knows_output = True

    def __init__(self, trace: SegmentTrace, page_size: int) -> None:
        self.page_size = page_size
        self.jobs = trace.jobs
        self._all = tokens = trace.segments
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
        return Key.from_tokens(tokens[:length], self.page_size, self._all.namespaces[job.index])

    def prompt_key(self, job: Job) -> Key:
        return self.key(job, job.input_length)

    def chain(self, job: Job) -> Pages:
        branches, ends = self._segments(job)
        cached = np.minimum(ends, job.input_length + job.output_length - 1)
        return spans(self._first_ids[branches], cached // self.page_size)

    def _segments(self, job: Job) -> tuple[NDArray[np.int32], Pages]:
        """The branches of a request, and the token after each."""
        starts = self._all.starts
        part = slice(starts[job.index], starts[job.index + 1])
        return self._branches[part], np.cumsum(self._lengths[part], dtype=np.int64)


def spans(firsts: Pages, ends: Pages) -> Pages:
    """The numbers from each of `firsts` on, one run after another. ends: the place after each."""
    starts = np.empty_like(ends)
    starts[0], starts[1:] = 0, ends[:-1]
    counts = ends - starts
    spans: Pages = np.repeat(firsts - starts, counts) + np.arange(ends[-1], dtype=np.int64)
    return spans
