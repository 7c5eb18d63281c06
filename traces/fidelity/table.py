"""Predicts rows on all cores, and keeps what is done when the command is interrupted.

Does not choose rows (see choosing) or print.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass

from ..executors import base as executors
from ..terminal.progress import progress
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import print_error
from . import kept as kept_file
from .predicting import Outcome, Task, predict


@dataclass(frozen=True, slots=True)
class How:
    """executor: its name. jobs: worker processes, 0 for one on each core. path: where outcomes are
    kept; None for nowhere."""

    executor: str
    jobs: int
    path: str | None


@dataclass(frozen=True, slots=True)
class Table(executors.Ended):
    """outcomes: in the order of the tasks, of those that are done."""

    outcomes: Sequence[Outcome]


@dataclass(frozen=True, slots=True)
class _Numbered:
    number: int
    task: Task


def predict_all(tasks: Sequence[Task], how: How) -> Table:
    """The outcome of each task that the file does not have."""
    done: dict[int, Outcome] = {}
    code, error = 0, None
    with ExitStack() as stack:
        kept = None
        if how.path is not None:
            kept = stack.enter_context(kept_file.opened(how.path))
            if kept.repaired:
                print_error(f"{how.path}: the last line was cut off; its row runs again")
            found = {number: kept.find(task) for number, task in enumerate(tasks)}
            done = {number: outcome for number, outcome in found.items() if outcome}
        missing = [_Numbered(n, task) for n, task in enumerate(tasks) if n not in done]
        if done and missing:
            print_error(f"{len(done)} of {len(tasks)} rows are done already")
        with progress("predicted", len(missing), "rows") as shown:
            try:
                for count, (number, outcome) in enumerate(_run(missing, how), 1):
                    done[number] = outcome
                    if kept is not None:
                        kept.add(tasks[number], outcome)
                    shown(count)
            except KeyboardInterrupt:
                code = INTERRUPTED
            except Exception as raised:  # what is done is shown before it is raised again
                error = raised
        if len(done) < len(tasks):
            again = "; the same command does the rest" if how.path else ""
            why = "interrupted: " if code else ""
            print_error(f"{why}{len(done)} of {len(tasks)} rows are done{again}")
    return Table(code, error, [done[number] for number in sorted(done)])


def _run(missing: Sequence[_Numbered], how: How) -> Iterator[tuple[int, Outcome]]:
    """The outcome of each task, in any order. The longest replays come first, so that no core waits
    at the end."""
    jobs = executors.workers(how.executor, how.jobs, len(missing))
    options = executors.JobOptions(_lost, ahead=2)
    first = sorted(missing, key=lambda one: -_size(one.task))
    with closing(executors.load(how.executor).run(_work, iter(first), jobs, options)) as results:
        yield from results


def _work(one: _Numbered) -> tuple[int, Outcome]:
    return one.number, predict(one.task)


def _size(task: Task) -> int:
    """Roughly how long a replay takes: its requests and their output tokens."""
    given = task.row.workload
    in_flight = given.get("concurrency_per_replica") or given.get("concurrency") or 1
    count = given.get("num_prompts") or 10 * in_flight
    output = given.get("osl") or 500
    return int(count) * 200 + int(output) * int(count) // int(in_flight or 1)


def _lost(one: _Numbered, open_tasks: int, how_ended: str) -> str:
    return executors.lost_within(f"the row {one.task.row.id}", open_tasks, how_ended)
