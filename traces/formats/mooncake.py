"""Mooncake FAST'25 traces: one request a line, the prompt as chained ids of 512-token blocks.

Fields: timestamp (ms), input_length, output_length (tokens), hash_ids. Equal ids mean equal blocks
after equal prefixes. The last block is usually partial. Ids may use all 64 bits; they are
renumbered 0, 1, 2, ... in the order of their first use. Output tokens have no ids, so no other
request can hit them. Format: github.com/kvcache-ai/Mooncake, FAST25-release/traces.

A page that is smaller than a block has an id made of its block and its index in the block:

    page id = dense block id * (512 / page_size) + index        index in 0 .. 512 / page_size - 1
    pages beyond the prompt's whole pages: -1 - (job << 32 | page), which no other job shares
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hicache.core.errors import CallerError
from hicache.core.types import Key, Pages
from sim.workload import Job

from . import _chains, base
from ._chains import Chains
from ._jobs import Jobs
from .base import Lines, Record

BLOCK_SIZE = 512
SUMMARY = "Mooncake FAST'25: timestamp, input_length, output_length, hash_ids of 512 tokens"

_LEAST_ID, _MOST_ID = -(1 << 63), (1 << 64) - 1


SAMPLE = """\
{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [7, 8]}
{"timestamp": 1.5, "input_length": 1000, "output_length": 1, "hash_ids": [7, 9]}
"""


def recognises(first: Record) -> bool:
    return "hash_ids" in first


def read(lines: Lines, limit: int) -> MooncakeTrace:
    """Reads all requests, or the first `limit`. Raises CallerError with the line."""
    jobs = Jobs()
    numbers = array("q")
    flat = array("i")
    starts = array("q", [0])
    number = Chains().number
    last_ns = 0
    for record in lines:
        arrival_ns = base.nanoseconds(lines, record, "timestamp")
        base.not_backwards(lines, arrival_ns, last_ns)
        last_ns = arrival_ns
        length = base.integer(lines, record, "input_length", 1, base.MAX_REQUEST_TOKENS)
        output = base.integer(
            lines,
            record,
            "output_length",
            1,
            base.MAX_REQUEST_TOKENS,
            "write at least 1 (a prefill yields the first token)",
        )
        previous = -1
        try:
            for block in _hash_ids(lines, record, length):
                # ids are chained here again, so a file whose ids are not chained is read correctly
                previous = number(previous, block)
                flat.append(previous)
        except OverflowError:
            lines.wrong(f"at most {_chains.MOST} different blocks", "more", "split the trace")
        starts.append(len(flat))
        jobs.add(arrival_ns, length, output)
        numbers.append(lines.number)
        if len(jobs) == limit:
            break
    return MooncakeTrace(lines.path, jobs, numbers, np.asarray(flat), starts)


def _hash_ids(lines: Lines, record: Record, length: int) -> list[int]:
    ids = record.get("hash_ids")
    expected = -(-length // BLOCK_SIZE)
    if type(ids) is not list:
        lines.wrong_field(record, "hash_ids", f"a list of {expected} integers")
    if len(ids) != expected:
        lines.wrong(
            f"{expected} hash_ids (input_length {length} / {BLOCK_SIZE}, rounded up)",
            str(len(ids)),
            f"correct the line, or convert a trace whose blocks are not {BLOCK_SIZE} tokens",
        )
    if set(map(type, ids)) != {int}:
        wrong = next(value for value in ids if type(value) is not int)
        lines.wrong("hash_ids that are integers", base.show(wrong), "correct the list")
    if min(ids) < _LEAST_ID or max(ids) > _MOST_ID:
        wrong = next(value for value in ids if not _LEAST_ID <= value <= _MOST_ID)
        lines.wrong("hash_ids of at most 64 bits", base.show(wrong), "shorten the hash")
    if len(set(ids)) != len(ids):
        wrong = _first_repeated(ids)
        lines.wrong(
            "each of a request's hash_ids once (they are chained)",
            f"{wrong} twice",
            "chain each id with the one before it",
        )
    return ids


def _first_repeated(ids: Sequence[int]) -> int:
    seen: set[int] = set()
    for value in ids:
        if value in seen:
            break
        seen.add(value)
    return value


class MooncakeTrace:
    """The requests; the blocks of request i are flat[starts[i] : starts[i + 1]]."""

    format = "mooncake"
    identity = True
    block_size = BLOCK_SIZE
    tenant_names = ("",)

    def __init__(
        self,
        path: str,
        jobs: Jobs,
        line_numbers: Sequence[int],
        flat: NDArray[np.int32],
        starts: Sequence[int],
    ) -> None:
        self.path = path
        self.jobs = jobs
        self.line_numbers = line_numbers
        self._flat = flat
        self._starts = starts

    @property
    def tenants(self) -> NDArray[np.int32]:
        return np.zeros(len(self.jobs), dtype=np.int32)

    def blocks(self, job: Job) -> NDArray[np.int32]:
        return self._flat[self._starts[job.index] : self._starts[job.index + 1]]

    def paged(self, page_size: int) -> MooncakePages:
        if page_size < 1 or BLOCK_SIZE % page_size:
            divisors = ", ".join(
                str(size) for size in range(1, BLOCK_SIZE + 1) if BLOCK_SIZE % size == 0
            )
            raise CallerError(
                f"{self.path}: expected a page size that divides its {BLOCK_SIZE}-token blocks, "
                f"found {page_size}; use one of {divisors}"
            )
        return MooncakePages(self, page_size)


class MooncakePages:
    """The trace in pages of `page_size` tokens, a divisor of the block size."""

    knows_output = False

    def __init__(self, trace: MooncakeTrace, page_size: int) -> None:
        self.page_size = page_size
        self.jobs = trace.jobs
        self._blocks = trace.blocks
        self._per_block = np.int64(BLOCK_SIZE // page_size)
        self._indices = np.arange(self._per_block, dtype=np.int64)

    def key(self, job: Job, length: int) -> Key:
        pages = length // self.page_size
        known = min(pages, job.input_length // self.page_size)
        ids = self._pages(job, known)
        if pages > known:
            unique = -1 - (job.index << 32 | np.arange(known, pages, dtype=np.int64))
            ids = np.concatenate((ids, unique))
        return Key.from_page_ids(ids)

    def prompt_key(self, job: Job) -> Key:
        return Key.from_page_ids(self.chain(job))

    def chain(self, job: Job) -> Pages:
        return self._pages(job, -(-job.input_length // self.page_size))

    def _pages(self, job: Job, pages: int) -> Pages:
        blocks = self._blocks(job)
        if self._per_block == 1:
            return blocks[:pages].astype(np.int64)
        return (blocks[:, None] * self._per_block + self._indices).ravel()[:pages]
