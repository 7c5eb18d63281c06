"""Traces whose prompts are ids of blocks, and traces of lengths only: columns, numbering, pages.

Ids are chained here again, in the order of their first use, so a file whose ids are not chained is
read correctly. A page that is smaller than a block is identified by its block and its place in it;
a page of several blocks by its last block:

    page id = block * (block size / page size) + place        or the number of the page's last block
    pages that the trace does not identify: -1 - (job << 32 | page), which no other job shares
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import NO_PAGES, Key, Pages
from sim.workload import Job

from . import _jobs, base
from ._jobs import Chains, Jobs, Tenants
from ._rows import About, Row
from .base import Lines

_LEAST_ID, _MOST_ID = -(1 << 63), (1 << 64) - 1


def check(lines: Lines, row: Row) -> None:
    """Raises CallerError for ids that no request may have."""
    ids = row.blocks
    if not ids:
        return
    if set(map(type, ids)) != {int}:
        wrong = next(value for value in ids if type(value) is not int)
        lines.wrong("hash_ids that are integers", base.show(wrong), "correct the list")
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


class _Numbering:
    """The blocks of all rows as numbers in one column. Equal numbers: equal after equal blocks."""

    def __init__(self) -> None:
        self.flat = array("i")
        self.starts = array("q", [0])
        self._chains = Chains()
        self._scopes: dict[str, tuple[int, int]] = {}  # (root, what is added to its ids)

    def add(self, row: Row) -> None:
        """Raises OverflowError if there are too many different blocks."""
        if row.blocks:
            known = self._scopes.get(row.scope)
            if known is None:
                # the ids of a scope often begin anywhere and count on; then they need no dictionary
                added = min(len(self._chains) - row.blocks[0], 1 << 31)
                known = -1 - len(self._scopes), max(added, -(1 << 31))
                self._scopes[row.scope] = known
            previous, added = known
            self.flat.extend(self._chains.numbers(previous, row.blocks, added))
        self.starts.append(len(self.flat))


def read(rows: Iterable[Row], about: About, path: str, name: str, limit: int) -> BlockTrace:
    """All rows in columns, or the first `limit`. Raises CallerError with the line."""
    jobs, tenants, blocks = Jobs(), Tenants(), _Numbering()
    numbers = array("q")
    begun = array("q")
    sessions: dict[str, int] = {}
    lines, last_ns = about.lines, 0
    for row in rows:
        lines = about.lines
        assert lines is not None
        check(lines, row)
        if row.after < 0 and not about.sorts:
            base.not_backwards(lines, row.arrival_ns, last_ns)
            last_ns = row.arrival_ns
        try:
            blocks.add(row)
        except OverflowError:
            lines.wrong(f"at most {_jobs.MOST} different blocks", "more", "split the trace")
        jobs.add(
            row.arrival_ns,
            row.input_length,
            row.output_length,
            row.after,
            _session(row, jobs, sessions),
            row.priority,
        )
        tenants.add(row.tenant)
        numbers.append(lines.number)
        if about.sorts:
            begun.append(row.start_ns)
        if len(jobs) == limit:
            break
    assert lines is not None
    if not jobs:
        lines.wrong("a request", "none", base.NO_TRACE)
    about.settle()
    jobs.timed = about.timed
    ends = np.asarray(blocks.starts)
    columns = Columns(
        jobs, np.asarray(numbers), tenants.numbers, np.asarray(blocks.flat), ends[:-1], ends[1:]
    )
    if about.sorts:
        columns = columns.by_start(np.asarray(begun))
        columns.jobs.begin_at_zero()
    return BlockTrace(path, name, columns, tenants.names, about)


def _session(row: Row, jobs: Jobs, sessions: dict[str, int]) -> int:
    if row.session is not None:
        return sessions.setdefault(row.session, len(jobs))
    return jobs.session(row.after) if row.after >= 0 else -1


@dataclass(frozen=True, slots=True)
class Columns:
    """One element for each request; its blocks are flat[starts[i] : ends[i]]."""

    jobs: Jobs
    line_numbers: NDArray[np.int64]
    tenants: NDArray[np.int32]
    flat: NDArray[np.int32]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None  # the row of each request, where they were sorted

    def by_start(self, begun: NDArray[np.int64]) -> Columns:
        """The requests in the order in which they began; those of one instant as they were."""
        order = np.argsort(begun, kind="stable")
        return Columns(
            self.jobs.reordered(order),
            self.line_numbers[order],
            self.tenants[order],
            self.flat,
            self.starts[order],
            self.ends[order],
            order,
        )


class BlockTrace:
    """A trace in columns; see the module."""

    def __init__(
        self, path: str, name: str, columns: Columns, tenant_names: Sequence[str], about: About
    ) -> None:
        self.path = path
        self.format = name
        self.jobs = columns.jobs
        self.tenants = columns.tenants
        self.tenant_names = tenant_names
        self.identity = about.identity
        self.block_size = about.block_size or None
        self.knows_output = about.knows_output
        self.notes = about.sentences()
        self.measured = about.measured
        self.line_numbers = array("q", columns.line_numbers.tobytes())
        self._columns = columns

    @property
    def block_counts(self) -> NDArray[np.int64]:
        """The identified blocks of each request."""
        return self._columns.ends - self._columns.starts

    def blocks(self, job: Job) -> NDArray[np.int32]:
        columns = self._columns
        return columns.flat[columns.starts[job.index] : columns.ends[job.index]]

    def row(self, job: Job) -> int:
        """Its place in the file: the same for all that read the beginning of one file."""
        rows = self._columns.rows
        return job.index if rows is None else int(rows[job.index])

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
