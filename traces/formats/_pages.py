"""Rows of any format as a trace: its columns, chained numbers of blocks or segments, and pages.

Ids of blocks are chained here again, in the order of their first use, so a file whose ids are not
chained is read correctly. A page that is smaller than a block is identified by its block and its
place in it; a page of several blocks by its last block:

    page id = block * (block size / page size) + place        or the number of the page's last block
    pages that the trace does not identify: -1 - (job << 32 | page), which no other job shares

Requests of tokens are segments of streams:

    token id = stream number << 24 | offset        streams numbered in order of appearance
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import NO_PAGES, Key, Pages
from sim.workload import Job

from . import _jobs, base
from ._jobs import Chains, Jobs, Tenants
from .base import About, Lines, Row, Trace

_LEAST_ID, _MOST_ID = -(1 << 63), (1 << 64) - 1
_OFFSET_BITS = 24
_LENGTH_BITS = 25

Segment: TypeAlias = tuple[int, int]  # number of the stream, tokens


def read(
    rows: Iterable[Row], about: About, path: str, name: str, limit: int
) -> BlockTrace | SegmentTrace:
    """All rows in columns, or the first `limit`. Raises CallerError with the line."""
    jobs, tenants, numbers, begun = Jobs(), Tenants(), array("q"), array("q")
    blocks, tokens = Blocks(), Segments()
    sessions: dict[str, int] = {}
    last_ns = 0
    for row in rows:
        lines = about.lines
        assert lines is not None
        if row.after < 0 and not about.sorts:
            base.not_backwards(lines, row.arrival_ns, last_ns)
            last_ns = row.arrival_ns
        try:
            if about.segments:
                tokens.add(row.ids, row.scope)
            else:
                _check(lines, row.ids)
                blocks.add(row.ids, row.scope)
        except OverflowError:
            what = "segments" if about.segments else "blocks"
            lines.wrong(f"at most {_jobs.MOST} different {what}", "more", "split the trace")
        session = len(jobs) if about.segments else -1
        if row.session is not None:
            session = sessions.setdefault(row.session, len(jobs))
        elif row.after >= 0:
            session = jobs.session(row.after)
        lengths = row.input_length, row.output_length
        jobs.add(row.arrival_ns, *lengths, row.after, session, row.priority)
        tenants.add(row.tenant)
        numbers.append(lines.number)
        if about.sorts:
            begun.append(row.start_ns)
        if len(jobs) == limit:
            break
    if not jobs:
        assert about.lines is not None
        about.lines.wrong("a request", "none", base.NO_TRACE)
    jobs.timed, jobs.sender = about.timed, about.sender
    told = about.sentences(), about.measured
    columns = path, name, jobs, numbers, tenants.numbers, tenants.names, *told
    if about.segments:
        return SegmentTrace(tokens, *columns)
    return BlockTrace(blocks, about, begun, *columns)


def _check(lines: Lines, ids: Sequence[int]) -> None:
    """Raises CallerError for ids that no request may have."""
    if not ids:
        return
    if min(ids) < _LEAST_ID or max(ids) > _MOST_ID:
        wrong = next(value for value in ids if not _LEAST_ID <= value <= _MOST_ID)
        lines.wrong("hash_ids of at most 64 bits", base.show(wrong), "shorten the hash")
    if len(set(ids)) != len(ids):
        wrong = first_repeated(ids)
        lines.wrong(
            "each of a request's hash_ids once (they are chained)",
            f"{wrong} twice",
            "chain each id with the one before it",
        )


def first_repeated(ids: Sequence[int]) -> int:
    seen: set[int] = set()
    for value in ids:
        if value in seen:
            break
        seen.add(value)
    return value


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
    """Requests as blocks, or with lengths only. begun: when each began, where they are sorted."""

    def __init__(self, blocks: Blocks, about: About, begun: array[int], *columns: Any) -> None:
        super().__init__(*columns)
        self.identity, self.knows_output = about.identity, about.knows_output
        self.partial, self.block_size = about.partial, about.block_size or None
        ends = np.asarray(blocks.starts)
        self._flat, self._starts, self._ends = np.asarray(blocks.flat), ends[:-1], ends[1:]
        self._rows: NDArray[np.int64] | None = None  # the row of each request, where sorted
        if about.sorts:  # those that began at one instant stay as they were
            self._rows = order = np.argsort(np.asarray(begun), kind="stable")
            self.jobs = self.jobs.reordered(order)
            self.jobs.begin_at_zero()
            self.line_numbers = array("q", np.asarray(self.line_numbers)[order].tobytes())
            self.tenants = self.tenants[order]
            self._starts, self._ends = self._starts[order], self._ends[order]

    @property
    def block_counts(self) -> NDArray[np.int64]:
        """The identified blocks of each request."""
        counts: NDArray[np.int64] = self._ends - self._starts
        return counts

    def blocks(self, job: Job) -> NDArray[np.int32]:
        return self._flat[self._starts[job.index] : self._ends[job.index]]

    def row(self, job: Job) -> int:
        """Its place in the file: the same for all that read the beginning of one file."""
        return job.index if self._rows is None else int(self._rows[job.index])

    def paged(self, page_size: int) -> BlockPages:
        size = self.block_size or page_size
        if page_size < 1 or (size % page_size and page_size % size):
            divisors = ", ".join(str(one) for one in range(1, size + 1) if size % one == 0)
            raise CallerError(
                f"{self.path}: expected a page size that divides its {size}-token blocks, or a "
                f"multiple of it, found {page_size}; use one of {divisors}"
            )
        return BlockPages(self, page_size)


class BlockPages:
    """A trace in pages of `page_size` tokens: a divisor or a multiple of the block size.

    In `_pages` the page of a partial block counts as a page, where the trace identifies it.
    """

    def __init__(self, trace: BlockTrace, page_size: int) -> None:
        self.page_size = page_size
        self.jobs = trace.jobs
        self.knows_output = trace.knows_output
        size = trace.block_size or page_size
        self._blocks, self._row = trace.blocks, trace.row
        self._per_block = size // page_size  # 0 for pages of several blocks
        self._per_page = max(1, page_size // size)
        self._places = np.arange(self._per_block, dtype=np.int64)
        prompts = trace.jobs.input_lengths.astype(np.int64)
        cached = prompts + trace.jobs.output_lengths - 1
        identified = trace.block_counts * size
        self._whole = np.minimum(cached if self.knows_output else prompts, identified) // page_size
        prompt = np.minimum(prompts, identified)
        self.prompt_pages = prompt // page_size if self.knows_output else -(-prompt // page_size)

    def key(self, job: Job, length: int) -> Key:
        pages = length // self.page_size
        known = min(pages, int(self._whole[job.index]))
        ids = self._pages(job, known)
        if pages > known:
            unique = -1 - (self._row(job) << 32 | np.arange(known, pages, dtype=np.int64))
            ids = np.concatenate((ids, unique))
        return Key.from_page_ids(ids)

    def prompt_key(self, job: Job) -> Key:
        return Key.from_page_ids(self._pages(job, int(self.prompt_pages[job.index])))

    def chain(self, job: Job) -> Pages:
        pages = self._whole if self.knows_output else self.prompt_pages
        return self._pages(job, int(pages[job.index]))

    def _pages(self, job: Job, pages: int) -> Pages:
        if not pages:
            return NO_PAGES
        blocks = self._blocks(job)
        if not self._per_block:
            last = np.arange(1, pages + 1, dtype=np.int64) * self._per_page - 1
            return blocks[np.minimum(last, len(blocks) - 1)].astype(np.int64)
        if self._per_block == 1:
            return blocks[:pages].astype(np.int64)
        return (blocks[:, None] * np.int64(self._per_block) + self._places).ravel()[:pages]


class Segments:
    """The tokens of all requests: the segments of each prompt, then the segment of its output.

    A stream after one prefix is a *branch*. The branches and lengths of the segments of request i
    are in `branches` and `lengths` from starts[i] to starts[i + 1]. Equal branches mean equal
    streams after equal tokens. Of each branch: its stream, the token at which it begins, and the
    most tokens of it that a cache holds: the last one of an output has no KV.
    """

    def __init__(self) -> None:
        self.branches, self.lengths = array("i"), array("i")
        self.starts = array("q", [0])
        self.namespaces: list[str] = []
        self.streams, self.first_tokens, self.longest = array("q"), array("i"), array("i")
        self._namespace = array("i")
        self._numbers: dict[str, int] = {}
        self._chains = Chains("q")

    def add(self, segments: Sequence[Segment], namespace: str) -> None:
        """Appends a request. Raises OverflowError if there are too many different branches."""
        root = self._numbers.setdefault(namespace, len(self._numbers))
        if root == len(self.namespaces):
            self.namespaces.append(namespace)
        self._namespace.append(root)
        before, first, left = -1 - root, 0, len(segments)
        longest, number = self.longest, self._chains.number
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
            self.branches.append(branch)
            self.lengths.append(length)
            before = branch << _LENGTH_BITS | length
            first += length
        self.starts.append(len(self.branches))

    def of(self, job: Job) -> Iterator[Segment]:
        """The segments of a request."""
        for place in range(self.starts[job.index], self.starts[job.index + 1]):
            yield self.streams[self.branches[place]], self.lengths[place]

    def namespace(self, index: int) -> str:
        return self.namespaces[self._namespace[index]]


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
    """The trace in pages of `page_size` tokens.

    A page belongs to the branch in which it ends. The pages of branch b have the ids from
    `_first_ids[b]` on, so that equal ids mean equal pages after equal prefixes.
    """

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
        return Key.from_tokens(tokens[:length], self.page_size, self._all.namespace(job.index))

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
