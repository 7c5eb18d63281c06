"""Points in workers: what makes two points the same, one replay and its document, and the file that
keeps what is done: JSON lines, a header for each grid and a line for each point.

A point has a key, a hash of the code that decides, the trace and every option, so that a run can go
on where it ended. A worker opens the trace once. How far each job is stands in a file of one number
for each, which workers write and the command reads: it needs no lock, which a worker that is killed
would keep.
"""

from __future__ import annotations

import gc
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from hicache.core.errors import CallerError
from invariants.watch import SPECIFIED_PAGES, Watch

from .. import executors
from ..formats._open import files_of
from ..formats.base import Trace
from ..outside import entries
from ..replaying import playing
from ..replaying.builtin import NAME as BUILTIN
from ..replaying.builtin import as_recorded
from ..replaying.config import resolve
from ..replaying.load import LoadOptions, loaded
from ..replaying.observing import Hopeless, story_on_error
from ..replaying.options import OPTIONS, OUTPUTS, ReplayedTrace, ReplayOptions, plain
from ..reporting.results import charted, result_of
from ..results.record import document, head
from ..terminal.options import rows
from ..terminal.output import Lines
from ..terminal.signals import INTERRUPTED, cores
from ..terminal.streams import print_error
from ..terminal.tables import progress

Document = dict[str, Any]
KIND, POINT = "sweep", "point"  # of a header, and of a point
SCHEMA = 1  # grows when a key changes its meaning or goes
_SHORT = 16  # hexadecimal digits of a key and of a version
_DECIDING = (
    *("hicache", "invariants", "sim", "traces.expected", "traces.formats", "traces.generators"),
    *("traces.replaying", "traces.reporting", "traces.results"),
)
# the options that decide which requests there are, and when they arrive
_READ = tuple(one.name for one in rows(ReplayedTrace))
_LOADED = tuple(name for name in vars(LoadOptions) if not name.startswith("_"))
_RARE = (100_000, 50, 100)  # allocations, and collections of younger objects, before a collection


@cache
def decisions() -> str:
    """A hash of the code and tables that a result depends on. Equal copies have the same."""
    digest = hashlib.sha256()
    for package in _DECIDING:
        [root] = import_module(package).__path__
        files = (path for path in Path(root).rglob("*") if path.suffix in (".py", ".json"))
        for path in sorted(files):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:_SHORT]


def trace_digest(path: str | None) -> str:
    """The SHA-256 of a trace: of its file, of the files of a folder that it may be read from, or
    the built-in one's name."""
    if path is None:
        return BUILTIN
    digest = hashlib.sha256()
    try:
        is_folder = os.path.isdir(path)
        for file in files_of(path) if is_folder else [path]:
            if is_folder:
                digest.update(os.path.relpath(file, path).encode() + b"\0")
            with open(file, "rb") as stream:
                while piece := stream.read(1 << 20):
                    digest.update(piece)
    except OSError as error:
        raise CallerError(
            f"{path}: expected a readable trace file, found: {error.strerror}; check the path"
        ) from None
    return digest.hexdigest()


def key_of(options: ReplayOptions, trace: str) -> str:
    """The key of a point. trace: the digest of the trace."""
    sources = [entries.source_of(package, name) for package, name in options.entries]
    named = [path for name, path in options.files.items() if name != "trace"]
    whole: dict[str, object] = {
        "decisions": decisions(),
        "trace": trace,
        "options": canonical(options),
        "files": {path: trace_digest(path) for path in sorted({*named, *filter(None, sources)})},
    }
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:_SHORT]


def canonical(options: ReplayOptions) -> dict[str, object]:
    """The options that were given, as JSON values. Equal values are equal, however they were
    typed."""
    return {
        one.name: plain(getattr(options, one.name))
        for one in OPTIONS
        if one.name not in ("trace", *OUTPUTS) and getattr(options, one.name) is not None
    }


class Traces:
    """Opens traces, and keeps the last one: as it was recorded, and with the last load."""

    def __init__(self) -> None:
        self._read: tuple[object, ...] = ()
        self._loaded: tuple[object, ...] = ()
        self._held: dict[tuple[object, ...], Trace] = {}
        self._recorded: Trace | None = None
        self._trace: Trace | None = None

    def hold(self, options: ReplayOptions, recorded: Trace) -> None:
        """Keeps a trace that was read already: what these options read, before their load."""
        self._held[_of(options, _READ)], self._read = recorded, ()

    def __call__(self, options: ReplayOptions) -> Trace:
        recorded, load = self.recorded(options), _of(options, _LOADED)
        if self._trace is None or load != self._loaded:
            self._trace, self._loaded = loaded(options, recorded), load
        return self._trace

    def recorded(self, options: ReplayOptions) -> Trace:
        """The trace before its load."""
        read = _of(options, _READ)
        if self._recorded is None or read != self._read:
            self._recorded = self._trace = None  # there is room for one
            self._recorded = self._held.get(read) or as_recorded(options)
            self._read = read
        return self._recorded


def _of(options: ReplayOptions, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(getattr(options, name) for name in names)


opened_once = Traces()  # of this process
_checked: set[tuple[str | None, str]] = set()


@dataclass(frozen=True, slots=True)
class Task:
    """A point that a worker runs. number: its place among all tasks. point: the varied options as
    JSON values. command: a `hicache replay` that does the same. attain: end the replay when fewer
    than this part of the requests can still keep the limits."""

    number: int
    key: str
    label: str
    point: dict[str, object]
    options: ReplayOptions
    command: str
    attain: Fraction | None = None


@dataclass(frozen=True)
class PointWork:
    """Everything that a worker needs beside the task. A call runs one point.

    trace: the digest of the trace. board: the file that says how far jobs are. shown: called when
    it was written to, where nobody else watches it.
    """

    trace: str
    decisions: str
    outside: entries.Outside
    board: str
    shown: Callable[[], None] | None = None

    def __call__(self, task: Task) -> Document:
        entries.load(self.outside)
        self._check(task.options.trace)
        trace = opened_once(task.options)
        started = time.perf_counter()
        settings, paged = resolve(task.options, trace)
        watch = hopeless = None
        if settings.check != "off":
            watch = Watch(settings.check, replay_command=task.command, most_pages=SPECIFIED_PAGES)
        if task.attain is not None and settings.slo is not None:
            hopeless = Hopeless(settings.slo, int((1 - task.attain) * len(paged.jobs)))
        with story_on_error(watch), _rare_collections():
            run = playing.run(
                *(trace, paged, settings, watch, started),
                shown=lambda *_: nullcontext(self._far(task.number)),
                hopeless=hopeless,
            )
        named = {"kind": POINT, "key": task.key, "label": task.label, "point": task.point}
        if hopeless is not None and hopeless.stopped:
            part = {"ended": hopeless.ended, "missed": hopeless.missed, "of": len(paged.jobs)}
            return head(task.command, complete=False) | named | {"stopped": part}
        if run.interrupted:
            raise KeyboardInterrupt
        result = charted(settings, run, result_of(trace, settings, run), task.label)
        found: Document = head(task.command, complete=True) | named | document(result)
        return found

    def _far(self, job: int) -> Callable[[int], None]:
        """A function that writes how far this job is."""
        try:
            numbers = np.memmap(self.board, dtype=np.int64, mode="r+")
        except OSError:  # on another machine
            return lambda done: None

        def write(done: int) -> None:
            numbers[job] = done
            if self.shown is not None:
                self.shown()

        return write

    def _check(self, path: str | None) -> None:
        """Raises CallerError if this machine has another trace or another version."""
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


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Reference counting frees nearly everything of a replay, and a collection scans its tree."""
    before = gc.get_threshold()
    gc.set_threshold(*_RARE)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class SweepFile(Lines):
    """done: documents of points, by key."""

    begins = f'{{"schema": {SCHEMA}, "kind": "{KIND}"'.encode()

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.done: dict[str, Document] = {}
        self._headers: list[Document] = []
        super().__init__(path, stream)

    def begin(self, given: Mapping[str, Any]) -> None:
        """Adds the header, unless the last grid was the same one. Raises CallerError if the file
        belongs to another trace or another version of this project."""
        header: Document = {"schema": SCHEMA, "kind": KIND, **given}
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
                f"{self.path}: expected a sweep of {what} ({ours[:_SHORT]}), found one of another "
                f"({str(theirs)[:_SHORT]}); name another file"
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
class Measured:
    """points: documents of those that are done, in the order of the tasks. code: the exit code.
    error: what ended the run before all was done, other than Ctrl-C."""

    points: Sequence[Document] = ()
    code: int = 0
    error: Exception | None = None

    @property
    def over(self) -> bool:
        """Whether the run was interrupted or failed."""
        return bool(self.code or self.error)

    def ended(self) -> int:
        """The exit code; raises the error. Call it when what is done was shown."""
        if self.error is not None:
            raise self.error
        return self.code


def measured(tasks: Sequence[Task], how: How, header: Mapping[str, Any], requests: int) -> Measured:
    """Runs the tasks that the sweep file does not have, and keeps each document there as it
    arrives. header: of the file. requests: of one point."""
    done: dict[str, Document] = {}
    code, error = 0, None
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
        if done and len(done) < len(tasks):
            print_error(f"{len(done)} of {len(tasks)} points are done already")
        missing = [task for task in tasks if task.key not in done]
        shown = stack.enter_context(progress(how.label, requests * len(missing)))
        try:
            with closing(_run(missing, how, header, shown)) as points:
                for point in points:
                    if file is not None:
                        file.append(point)
                    done[point["key"]] = point
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Exception as raised:  # what is done is shown before it is raised again
            error = raised
    if len(done) < len(tasks):
        again = "; the same command does the rest" if how.path else ""
        why = "interrupted: " if code else ""
        print_error(f"{why}{len(done)} of {len(tasks)} points are done{again}")
    return Measured([done[task.key] for task in tasks if task.key in done], code, error)


def _run(
    tasks: Sequence[Task], how: How, header: Mapping[str, Any], shown: Callable[[int], None]
) -> Generator[Document]:
    """The document of each task, in any order. A lost worker ends the run with WorkerLost, which
    names a point."""
    workers = how.jobs
    if how.executor == executors.LOCAL:
        workers = min(workers or cores(), len(tasks)) or 1
    handle, board = tempfile.mkstemp(prefix="hicache-progress-")
    try:
        os.write(handle, bytes(8 * len(tasks)))
        os.close(handle)

        def watch() -> None:
            shown(int(np.fromfile(board, dtype=np.int64).sum()))

        alone = how.executor == executors.LOCAL and workers == 1  # nobody watches the board
        work = PointWork(
            *(header["trace"]["sha256"], header["decisions"], entries.given(), board),
            watch if alone else None,
        )
        numbered = [replace(task, number=number) for number, task in enumerate(tasks)]
        options = executors.JobOptions(_lost, ahead=1, watch=watch, forked=True)
        yield from executors.run(how.executor, workers, work, numbered, options)
    finally:
        with suppress(OSError):
            os.unlink(board)


def labelled(point: Document, label: str) -> Document:
    """A point with another label."""
    return point | {"label": label}


def _lost(task: Task, open_tasks: int, how_ended: str) -> str:
    others = f" and {open_tasks - 1} others" if open_tasks > 1 else ""
    return (
        f"a worker was lost within the point {task.label}{others}: {how_ended}; what is done is "
        "kept, and --jobs 1 does the rest in one process"
    )
