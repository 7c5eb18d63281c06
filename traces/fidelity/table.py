"""Predicts rows on all cores, and keeps each outcome in a file as it arrives, so that a second run
does only the rest.

A line of the file is found again if the row, the time model, its constants and the simulator are
the same: all of their files are part of the key. Does not choose rows (see choosing) or print.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import hicache
import sim

from ..executors import base as executors
from ..terminal.appended import Lines
from ..terminal.progress import progress
from ..terminal.streams import print_error
from .predicting import Outcome, Task, predict
from .rows import Row

_ROOTS = (Path(hicache.__path__[0]), Path(sim.__path__[0]), Path(__file__).parent)
_SUFFIXES = (".py", ".json")


def key_of(task: Task) -> str:
    """The identity of a prediction."""
    given = asdict(task)
    given["row"]["where"] = ""  # the same row may move within its file
    text = json.dumps([given, _code()], sort_keys=True)
    return sha256(text.encode()).hexdigest()


@cache
def _code() -> str:
    """The digest of everything that a prediction depends on beside its row."""
    found = sha256()
    for root in _ROOTS:
        for path in sorted(root.rglob("*")):
            if path.suffix in _SUFFIXES:
                found.update(f"{path.relative_to(root.parent)}\0".encode())
                found.update(path.read_bytes())
    return found.hexdigest()


class Kept(Lines):
    """A file of outcomes. done: by the key of their task."""

    begins = b'{"key": "'

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.done: dict[str, Outcome] = {}
        super().__init__(path, stream)

    def take(self, line: Any) -> None:
        self.done[line["key"]] = Outcome.of(line["outcome"])

    def expected(self) -> str:
        return "a row that was predicted before"


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
    with ExitStack() as stack:
        kept = None
        if how.path is not None:
            kept = stack.enter_context(Kept.opened(how.path))
            if kept.repaired:
                print_error(f"{how.path}: the last line was cut off; its row runs again")
            keys = enumerate(map(key_of, tasks))
            done = {number: kept.done[key] for number, key in keys if key in kept.done}
        missing = [_Numbered(n, task) for n, task in enumerate(tasks) if n not in done]

        def results(shown: Callable[[int], None]) -> Iterator[tuple[int, Outcome]]:
            for count, (number, outcome) in enumerate(_run(missing, how), 1):
                if kept is not None:
                    line = {"key": key_of(tasks[number]), "outcome": outcome.document()}
                    kept.append(line)
                yield number, outcome
                shown(count)

        shown = progress("predicted", len(missing), "rows")
        ended = executors.finish(done, len(tasks), "rows", bool(how.path), shown, results)
    return Table(ended.code, ended.error, [done[number] for number in sorted(done)])


def _run(missing: Sequence[_Numbered], how: How) -> Iterator[tuple[int, Outcome]]:
    """The outcome of each task, in any order. The longest replays come first, so that no core waits
    at the end."""
    first = sorted(missing, key=lambda one: -size_of(one.task.row))
    options = executors.JobOptions(_lost, ahead=2)
    return executors.run(how.executor, how.jobs, _work, first, options)


def _work(one: _Numbered) -> tuple[int, Outcome]:
    return one.number, predict(one.task)


def size_of(row: Row) -> int:
    """Roughly how long a replay takes: its requests and their output tokens."""
    given = row.workload
    in_flight = given.get("concurrency_per_replica") or given.get("concurrency") or 1
    count = given.get("num_prompts") or 10 * in_flight
    output = given.get("osl") or 500
    return int(count) * 200 + int(output) * int(count) // int(in_flight or 1)


def _lost(one: _Numbered, open_tasks: int, how_ended: str) -> str:
    return executors.lost_within(f"the row {one.task.row.id}", open_tasks, how_ended)
