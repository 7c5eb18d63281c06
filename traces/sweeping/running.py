"""Runs tasks on an executor, and keeps each document in the file of the sweep as it arrives: JSON
lines, a header for each grid and a line for each point that is done.

Does not choose points (see grid) or run one (see work).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

from hicache.core.errors import CallerError

from ..executors import base as executors
from ..terminal.appended import Lines
from ..terminal.progress import progress
from ..terminal.streams import print_error
from .work import KIND as POINT
from .work import Board, PointWork, Task, board

KIND = "sweep"
_SHOWN = 16  # digits of a hash
SCHEMA = 1  # grows when a key changes its meaning or goes


class SweepFile(Lines):
    """done: documents of points, by key."""

    begins = f'{{"schema": {SCHEMA}, "kind": "{KIND}"'.encode()

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.done: dict[str, dict[str, Any]] = {}
        self._headers: list[dict[str, Any]] = []
        super().__init__(path, stream)

    def begin(self, given: Mapping[str, Any]) -> None:
        """Adds the header, unless the last grid was the same one. Raises CallerError if the file
        belongs to another trace or another version of this project."""
        header: dict[str, Any] = {"schema": SCHEMA, "kind": KIND, **given}
        if self._headers:
            before = self._headers[0]
            self._same("the trace", before["trace"]["sha256"], header["trace"]["sha256"])
            self._same("this version", before.get("decisions"), header["decisions"])
        told = ("base", "grid")
        if not self._headers or any(self._headers[-1].get(key) != header[key] for key in told):
            self.append(header)

    def _same(self, what: str, theirs: object, ours: str) -> None:
        if theirs != ours:
            raise CallerError(
                f"{self.path}: expected a sweep of {what} ({ours[:_SHOWN]}), found one of another "
                f"({str(theirs)[:_SHOWN]}); name another file"
            )

    def take(self, line: Any) -> None:
        if line["kind"] == KIND:
            line["trace"]["sha256"]
            self._headers.append(line)
        elif line["kind"] == POINT and self._headers:
            self.done[line["key"]] = line
        else:
            raise ValueError

    def expected(self) -> str:
        return f"{'a point or a header' if self._headers else 'the header'} of a sweep"


@dataclass(frozen=True, slots=True)
class How:
    """executor: its name. jobs: worker processes, 0 for one on each core. path: of the sweep file;
    None to keep nothing. label: of the progress."""

    executor: str
    jobs: int
    path: str | None
    label: str


@dataclass(frozen=True, slots=True)
class Measured(executors.Ended):
    """points: documents of those that are done, in the order of the tasks."""

    points: Sequence[dict[str, Any]]


def measured(
    work: Callable[[Board], PointWork],
    tasks: Sequence[Task],
    how: How,
    header: Mapping[str, object],
    requests: int,
) -> Measured:
    """Runs the tasks that the sweep file does not have. header: of the file.
    requests: of one point."""
    done: dict[str, dict[str, Any]] = {}
    with ExitStack() as stack:
        file = None
        if how.path is not None:
            file = stack.enter_context(SweepFile.opened(how.path))
            file.begin(header)
            done = {
                task.key: labelled(file.done[task.key], task.label) | {"point": task.point}
                for task in tasks
                if task.key in file.done
            }
            if file.repaired:
                print_error(f"{how.path}: the last line was cut off; its point runs again")
        missing = [task for task in tasks if task.key not in done]

        def results(shown: Callable[[int], None]) -> Iterator[tuple[str, dict[str, Any]]]:
            for point in _run(work, missing, how, shown):
                if file is not None:
                    file.append(point)
                yield point["key"], point

        shown = progress(how.label, requests * len(missing))
        ended = executors.finish(done, len(tasks), "points", bool(how.path), shown, results)
    points = [done[task.key] for task in tasks if task.key in done]
    return Measured(ended.code, ended.error, points)


def labelled(point: dict[str, Any], label: str) -> dict[str, Any]:
    """A point with another label. One whose replay was stopped has no variant."""
    variant = point["variant"]
    return point | {"label": label, "variant": variant and variant | {"label": label}}


def _run(
    work: Callable[[Board], PointWork],
    tasks: Sequence[Task],
    how: How,
    shown: Callable[[int], None],
) -> Iterator[dict[str, Any]]:
    """The document of each task, in any order. A lost worker ends the run with WorkerLost, which
    names a point."""
    jobs = executors.workers(how.executor, how.jobs, len(tasks))
    with board(len(tasks)) as far:
        whole = work(far)
        if how.executor == executors.LOCAL and jobs == 1:  # nobody watches the board
            whole = replace(whole, shown=lambda: shown(far.total()))
        options = executors.JobOptions(
            _lost, ahead=1, watch=lambda: shown(far.total()), forked=True
        )
        numbered = [replace(task, number=number) for number, task in enumerate(tasks)]
        yield from executors.run(how.executor, how.jobs, whole, numbered, options)


def _lost(task: Task, open_tasks: int, how_ended: str) -> str:
    return executors.lost_within(f"the point {task.label}", open_tasks, how_ended)
