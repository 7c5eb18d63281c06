"""One point in a worker: opens the trace once, replays it, and makes the document of the point.

How far each job is stands on a board: a file of one number for each, which workers write and the
command reads. It needs no lock, which a worker that is killed would keep. Runs in a process of its
own, on another machine, or in the command's process. Does not print.
"""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from invariants.watch import SPECIFIED_PAGES, Watch

from ..formats.base import Trace
from ..html.collecting import collect
from ..outside import entries
from ..replaying import modes
from ..replaying.builtin import as_recorded
from ..replaying.declared.run import ReplayedTrace
from ..replaying.load import LoadOptions, loaded
from ..replaying.observing.ending import Hopeless
from ..replaying.options import ReplayOptions
from ..replaying.settings import resolve
from ..replaying.story import story_on_error
from ..reporting.head import head
from ..reporting.results import result_of
from ..results.record import document
from ..terminal.rows import rows
from .identity import decisions, trace_digest


@dataclass(frozen=True, slots=True)
class Board:
    """path: of the file. jobs: how many numbers it has."""

    path: str
    jobs: int

    def total(self) -> int:
        """The sum of all numbers."""
        return int(np.fromfile(self.path, dtype=np.int64).sum())

    def writer(self, job: int) -> Callable[[int], None]:
        """A function that writes how far this job is."""
        try:
            numbers = np.memmap(self.path, dtype=np.int64, mode="r+")
        except OSError:
            return lambda done: None

        def write(done: int) -> None:
            numbers[job] = done

        return write


@contextmanager
def board(jobs: int) -> Iterator[Board]:
    """A board of zeros, which goes at the end of the block."""
    handle, path = tempfile.mkstemp(prefix="hicache-progress-")
    try:
        os.write(handle, bytes(8 * jobs))
        os.close(handle)
        yield Board(path, jobs)
    finally:
        with suppress(OSError):
            os.unlink(path)


KIND = "point"
# the options that decide which requests there are, and when they arrive
_READ = tuple(one.name for one in rows(ReplayedTrace))
_LOADED = tuple(name for name in vars(LoadOptions) if not name.startswith("_"))


@dataclass(frozen=True, slots=True)
class Task:
    """A point that a worker runs. number: its place among all tasks. point: the varied options as
    JSON values. command: a `hicache replay` that does the same. follow: also find out why tokens
    were lost, and when bytes moved, which takes a quarter more time. attain: end the replay when
    fewer than this part of the requests can still keep the limits."""

    number: int
    key: str
    label: str
    point: dict[str, object]
    options: ReplayOptions
    command: str
    follow: bool = False
    attain: Fraction | None = None


class Traces:
    """Opens traces, and keeps the last one: as it was recorded, and with the last load."""

    def __init__(self) -> None:
        self._read: tuple[object, ...] = ()
        self._loaded: tuple[object, ...] = ()
        self._held: tuple[tuple[object, ...], Trace] | None = None
        self._recorded: Trace | None = None
        self._trace: Trace | None = None

    def hold(self, options: ReplayOptions, recorded: Trace) -> None:
        """Keeps a trace that was read already: what these options read, before their load."""
        self._held, self._read = (tuple(getattr(options, name) for name in _READ), recorded), ()

    def __call__(self, options: ReplayOptions) -> Trace:
        recorded = self.recorded(options)
        load = tuple(getattr(options, name) for name in _LOADED)
        if self._trace is None or load != self._loaded:
            self._trace, self._loaded = loaded(options, recorded), load
        return self._trace

    def recorded(self, options: ReplayOptions) -> Trace:
        """The trace before its load."""
        read = tuple(getattr(options, name) for name in _READ)
        if self._recorded is None or read != self._read:
            self._recorded = self._trace = (
                None  # before the next one is read: there is room for one
            )
            if self._held is not None and self._held[0] == read:
                self._recorded = self._held[1]
            else:
                self._recorded = as_recorded(options)
            self._read = read
        return self._recorded


opened_once = Traces()  # of this process
# allocations, and collections of younger objects, before a collection
_RARE = (100_000, 50, 100)
_checked: set[tuple[str | None, str]] = set()


@contextmanager
def rare_collections() -> Iterator[None]:
    """Reference counting frees nearly everything of a replay, and a collection scans its tree."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@dataclass(frozen=True)
class PointWork:
    """Everything that a worker needs beside the task. A call runs one point.

    trace: the digest of the trace. shown: called when the board was written to, where nobody else
    watches it.
    """

    trace: str
    decisions: str
    outside: entries.Outside
    board: Board
    shown: Callable[[], None] | None = None

    def __call__(self, task: Task) -> dict[str, Any]:
        entries.load(self.outside)
        self._check(task)
        trace = opened_once(task.options)
        progress = self.board.writer(task.number)

        def far(done: int) -> None:
            progress(done)
            if self.shown is not None:
                self.shown()

        started = time.perf_counter()
        settings, paged = resolve(task.options, trace)
        watch = None
        if settings.check != "off":
            watch = Watch(settings.check, replay_command=task.command, most_pages=SPECIFIED_PAGES)
        hopeless = None
        if task.attain is not None and settings.slo is not None:
            hopeless = Hopeless(settings.slo, int((1 - task.attain) * len(paged.jobs)))
        with story_on_error(watch), rare_collections():
            run = modes.run(
                *(trace, paged, settings, watch, started, task.follow),
                shown=lambda *_: nullcontext(far),
                hopeless=hopeless,
            )
        named = {"kind": KIND, "key": task.key, "label": task.label, "point": task.point}
        if hopeless is not None and hopeless.stopped:
            part = {"ended": hopeless.ended, "missed": hopeless.missed, "of": len(paged.jobs)}
            return head(task.command, complete=False) | named | {"stopped": part, "variant": None}
        if run.interrupted:
            raise KeyboardInterrupt
        result = result_of(trace, settings, run)
        variant = document(collect(trace, settings, run, result, task.label))
        found: dict[str, Any] = head(task.command, complete=True) | named | document(result)
        return found | {"variant": variant}

    def _check(self, task: Task) -> None:
        """Raises CallerError if this machine has another trace or another version."""
        path = task.options.trace
        if (path, self.trace) in _checked:
            return
        for what, expected, found in (
            ("this project", self.decisions, decisions()),
            (f"the trace {path}", self.trace, trace_digest(path)),
        ):
            if expected != found:
                raise CallerError(
                    f"expected the same version of {what} on every machine, found {found} where "
                    f"the command has {expected}; copy it there"
                )
        _checked.add((path, self.trace))
