"""Rows recorded on all cores: replays under given constants, and the samples of their passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sim.fitted.factors import Factor

from ...executors import base as executors
from ..rows import Row
from ..table import size_of
from .samples import Sample, samples_of, sharing, usable

Progress = Callable[[float], None]
Given = TypeVar("Given")
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Workers:
    """executor: its name. jobs: worker processes, 0 for one on each core."""

    executor: str = executors.LOCAL
    jobs: int = 1

    def done(
        self,
        work: Callable[[Given], Found],
        given: Sequence[Given],
        progress: Progress,
        sizes: Sequence[int] = (),
    ) -> list[Found]:
        """What `work` gives for each, in their order. sizes: what each adds to the progress."""
        sizes = sizes or [1] * len(given)
        found: dict[int, Found] = {}
        jobs = [_Job(number, work, one) for number, one in enumerate(given)]
        options = executors.JobOptions(_lost, ahead=2)
        for number, result in executors.run(self.executor, self.jobs, _work, jobs, options):
            found[number] = result
            progress(sum(sizes[one] for one in found) / sum(sizes))
        return [found[number] for number in range(len(given))]


@dataclass(frozen=True, slots=True)
class _Job:
    number: int
    work: Callable[[Any], Any]
    given: Any


def _work(job: _Job) -> tuple[int, Any]:
    return job.number, job.work(job.given)


def _lost(job: _Job, open_jobs: int, how_ended: str) -> str:
    return f"a worker of the fit was lost: {how_ended}; --jobs 1 fits in one process"


def recorded(
    rows: Sequence[Row], given: tuple[Factor, ...], workers: Workers, progress: Progress
) -> list[Sample]:
    """The samples of those rows that constants are fitted to, by id, from replays with these
    factors."""
    shared = sharing(sorted(filter(usable, rows), key=lambda row: row.id), given)
    shared = sorted(shared, key=lambda each: -size_of(each[0]))
    jobs, sizes = [(each, given) for each in shared], [size_of(each[0]) for each in shared]
    found = [one for each in workers.done(_recorded, jobs, progress, sizes) for one in each]
    return sorted(found, key=lambda one: one.row)


def _recorded(job: tuple[Sequence[Row], tuple[Factor, ...]]) -> list[Sample]:
    return samples_of(*job)
