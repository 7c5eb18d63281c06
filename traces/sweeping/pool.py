"""Measures several points in processes of their own, each of which reads the trace itself.

A process that is no longer wanted (after Ctrl-C, or beside one that failed) is killed; what was
measured before is kept. Does not know what a point is for; see words and picture.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from ctypes import c_int64
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.process import BaseProcess
from multiprocessing.sharedctypes import SynchronizedArray
from typing import TypeAlias

from hicache.core.errors import CallerError

from ..formats.base import Trace
from ..outside import entries
from ..replaying.builtin import opened
from ..replaying.options import ReplayOptions
from ..terminal.workers import ignore_signals
from .points import Point, measure

_POLL_S = 0.3
Counts: TypeAlias = "SynchronizedArray[int]"


class PointFailed(Exception):
    """A process ended with an error that is not the caller's; the text is its traceback."""


@dataclass(frozen=True, slots=True)
class _Running:
    place: int
    process: BaseProcess
    answers: connection.Connection


def points(
    options: ReplayOptions,
    trace: Trace,
    sizes: Sequence[int],
    jobs: int,
    progress: Callable[[int], None],
) -> Iterator[Point]:
    """The points as they are measured, in any order. progress: gets all requests done so far.

    With one job they are measured here, and the trace is not read again.
    """
    if jobs == 1:
        for place, size in enumerate(sizes):
            yield measure(options, trace, size, _after(place * len(trace.jobs), progress))
        return
    context = get_context("spawn")
    counts: Counts = context.Array(c_int64, len(sizes))
    waiting = list(enumerate(sizes))[::-1]
    running: list[_Running] = []
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                place, size = waiting.pop()
                mine, theirs = context.Pipe(duplex=False)
                given = (options, entries.given(), size, place, counts, theirs)
                process = context.Process(target=_work, args=given, daemon=True)
                process.start()
                theirs.close()
                running.append(_Running(place, process, mine))
            done = connection.wait([one.answers for one in running], _POLL_S)
            progress(sum(counts[:]))
            for one in [each for each in running if each.answers in done]:
                running.remove(one)
                yield _answer(one)
    finally:
        for one in running:
            one.process.kill()
            one.process.join()


def _after(before: int, progress: Callable[[int], None]) -> Callable[[int], None]:
    return lambda done: progress(before + done)


def _answer(one: _Running) -> Point:
    try:
        kind, answer = one.answers.recv()
    except EOFError:
        kind = "lost"
    one.process.join()
    if kind == "point":
        assert isinstance(answer, Point)
        return answer
    if kind == "lost":
        raise CallerError(
            "expected an answer of every process, found that one was killed (out of memory?); give "
            "--jobs 1, or fewer sizes"
        )
    raise CallerError(answer) if kind == "bad input" else PointFailed(answer)


def _work(
    options: ReplayOptions,
    outside: entries.Outside,
    size: int,
    place: int,
    counts: Counts,
    answers: connection.Connection,
) -> None:
    ignore_signals()
    try:
        entries.load(outside)
        options, trace = opened(options)

        def progress(done: int) -> None:
            counts[place] = done

        answer: tuple[str, object] = ("point", measure(options, trace, size, progress))
    except CallerError as error:
        answer = ("bad input", str(error))
    except Exception:
        answer = ("crash", traceback.format_exc())
    with suppress(BrokenPipeError):
        answers.send(answer)
