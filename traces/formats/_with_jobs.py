"""A trace with other jobs: some of its requests, all of them at other times, or several times.

Lives here: everything that such a trace takes from the one behind it. Does not choose or time
requests; see _sample and replaying/load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Key, Pages
from sim.workload import Job

from ._jobs import Jobs
from .base import Paged, Trace


class TraceWithJobs:
    """See the module."""

    def __init__(self, trace: Trace, jobs: Jobs) -> None:
        self._trace = trace
        self.jobs = jobs

    @property
    def path(self) -> str:
        return self._trace.path

    @property
    def format(self) -> str:
        return self._trace.format

    @property
    def identity(self) -> bool:
        return self._trace.identity

    @property
    def block_size(self) -> int | None:
        return self._trace.block_size

    @property
    def line_numbers(self) -> Sequence[int]:
        return self._trace.line_numbers

    @property
    def notes(self) -> Sequence[str]:
        return self._trace.notes

    @property
    def tenants(self) -> NDArray[np.int32]:
        return self._trace.tenants

    @property
    def tenant_names(self) -> Sequence[str]:
        return self._trace.tenant_names

    def paged(self, page_size: int) -> Paged:
        return PagesWithJobs(self._trace.paged(page_size), self.jobs)


class PagesWithJobs:
    """Such a trace in pages."""

    def __init__(self, paged: Paged, jobs: Jobs) -> None:
        self._paged = paged
        self.jobs = jobs

    @property
    def page_size(self) -> int:
        return self._paged.page_size

    @property
    def knows_output(self) -> bool:
        return self._paged.knows_output

    @property
    def prompt_pages(self) -> Pages:
        return self._paged.prompt_pages

    def key(self, job: Job, length: int) -> Key:
        return self._paged.key(job, length)

    def prompt_key(self, job: Job) -> Key:
        return self._paged.prompt_key(job)

    def chain(self, job: Job) -> Pages:
        return self._paged.chain(job)


class RenumberedTrace(TraceWithJobs):
    """Requests of a trace under numbers of their own. numbers: of each, that in the trace."""

    def __init__(self, trace: Trace, jobs: Jobs, numbers: NDArray[np.int64]) -> None:
        super().__init__(trace, jobs)
        self.numbers = numbers

    @property
    def line_numbers(self) -> Sequence[int]:
        return [self._trace.line_numbers[number] for number in self.numbers.tolist()]

    @property
    def tenants(self) -> NDArray[np.int32]:
        return self._trace.tenants[self.numbers]


class RenumberedPages(PagesWithJobs):
    """Such requests in pages. The ids of pages are those of the trace."""

    def __init__(self, paged: Paged, jobs: Jobs, numbers: NDArray[np.int64]) -> None:
        super().__init__(paged, jobs)
        self._numbers = numbers

    @property
    def prompt_pages(self) -> Pages:
        return self._paged.prompt_pages[self._numbers]

    def key(self, job: Job, length: int) -> Key:
        return self._paged.key(self._whole(job), length)

    def prompt_key(self, job: Job) -> Key:
        return self._paged.prompt_key(self._whole(job))

    def chain(self, job: Job) -> Pages:
        return self._paged.chain(self._whole(job))

    def _whole(self, job: Job) -> Job:
        """The request under its number in the trace."""
        return replace(job, index=int(self._numbers[job.index]))
