"""A grid of replays, the points that it makes, and their replays in workers.

An option that a point would not read is left out there (a write policy where there is no host
memory), and points that are then the same are one. An option that no point reads is an error, as in
`hicache replay`. Every point is resolved before the first one runs.

A point has a key, a hash of the code that decides, the trace and every option, so that a run can go
on where it ended: each is kept in a file of JSON lines when it is done, a header for each grid and
a line for each point. A worker opens the trace once.
"""

import fcntl
import gc
import hashlib
import json
import os
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from importlib import import_module
from itertools import product
from math import prod
from operator import attrgetter
from pathlib import Path
from typing import Any, BinaryIO, Self

from hicache.core.errors import CallerError
from hicache.version import VERSION

from .. import executors, plugins
from ..formats import content_digest
from ..formats.base import Trace
from ..replaying import playing
from ..replaying.account import Hopeless
from ..replaying.config import BUILTIN, SIMULATED, as_recorded, resolve, simulated
from ..replaying.options import OPTIONS, OUTPUTS, ReplayedTrace, ReplayOptions, Unread, plain
from ..replaying.sizes import TooLarge
from ..replaying.traffic import loaded
from ..reporting.results import charted, result_of
from ..results.record import SCHEMA, document, head
from ..terminal.options import rows
from ..terminal.output import unwritable
from ..terminal.signals import INTERRUPTED, cores, deferred
from ..terminal.streams import print_error
from ..terminal.tables import progress

Document = dict[str, Any]
MOST_POINTS = 10_000
KIND, POINT = "sweep", "point"  # of a header, and of a point
_BEGIN = f'{{"schema": {SCHEMA}, "kind": "{KIND}"'.encode()  # of a file, so no other is cut off
_SHORT = 16  # hexadecimal digits of a key and of a version
_DECIDES = (
    *("hicache", "invariants", "sim", "traces.error_bars", "traces.formats", "traces.generators"),
    *("traces.replaying", "traces.reporting", "traces.results"),
)
# the options that decide which requests there are, and when they arrive
_READ = attrgetter(*(row.name for row in rows(ReplayedTrace)), "text_block")
_RARE = (100_000, 50, 100)  # allocations, and collections of younger objects, before a collection


# -- what makes two points the same


@cache
def decisions() -> str:
    """A hash of the code and tables that a result depends on. Equal copies have the same."""
    digest = hashlib.sha256()
    for package in _DECIDES:
        [root] = import_module(package).__path__
        files = (path for path in Path(root).rglob("*") if path.suffix in (".py", ".json"))
        for path in sorted(files):
            digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:_SHORT]


def digest_of(path: str | None) -> str:
    """Of what a file or trace says; the name of the built-in one."""
    return BUILTIN if path is None else content_digest(path)


def key_of(options: ReplayOptions, trace: str) -> str:
    """The key of a point. trace: the digest of the trace."""
    sources = [plugins.source_of(package, name) for package, name in options.plugins]
    named = [path for name, path in options.files.items() if name != "trace"]
    full: dict[str, object] = {
        "decisions": decisions(),
        "trace": trace,
        "options": _canonical(options),
        "files": {path: digest_of(path) for path in sorted({*named, *filter(None, sources)})},
    }
    return hashlib.sha256(json.dumps(full, sort_keys=True).encode()).hexdigest()[:_SHORT]


def _canonical(options: ReplayOptions) -> dict[str, object]:
    """The options that were given, as JSON values. Equal values are equal, however they were
    typed."""
    return {
        option.name: plain(getattr(options, option.name))
        for option in OPTIONS
        if option.name not in ("trace", *OUTPUTS) and getattr(options, option.name) is not None
    }


class Traces:
    """Opens traces, and keeps the last one: as it was recorded, and with the last load."""

    def __init__(self) -> None:
        self._kept: dict[object, Trace] = {}
        self._recorded: tuple[object, Trace] | None = None
        self._loaded: tuple[object, Trace] | None = None

    def hold(self, options: ReplayOptions, recorded: Trace) -> None:
        """Keeps a trace that was read already: what these options read, before their load."""
        self._kept[_READ(options)] = recorded

    def __call__(self, options: ReplayOptions) -> Trace:
        how = _READ(options), options.load
        if self._loaded is None or self._loaded[0] != how:
            self._loaded = how, loaded(options.load, self.recorded(options))
        return self._loaded[1]

    def recorded(self, options: ReplayOptions) -> Trace:
        """The trace before its load."""
        read = _READ(options)
        if read in self._kept:
            return self._kept[read]
        if self._recorded is None or self._recorded[0] != read:
            self._recorded = self._loaded = None  # there is room for one
            self._recorded = read, as_recorded(options)
        return self._recorded[1]


opened_once = Traces()  # of this process


# -- a grid


@dataclass(frozen=True, slots=True)
class Value:
    """A value of an option, as it was typed and as it was read."""

    text: str
    value: Any


@dataclass(frozen=True, slots=True)
class Grid:
    """base: the options, with the first of several values. axes: those with several, by the field
    of ReplayOptions."""

    base: ReplayOptions
    axes: Mapping[str, Sequence[Value]] = field(default_factory=dict)

    def __len__(self) -> int:
        return prod(map(len, self.axes.values()))


@dataclass(frozen=True, slots=True)
class Task:
    """A point that a worker runs. point: the options that vary, as JSON values. command: a `hicache
    replay` that does the same. attain: end the replay when fewer than this part of the requests can
    still keep the limits."""

    key: str
    label: str
    point: dict[str, Any]
    options: ReplayOptions
    command: str
    attain: Fraction | None = None


def tasks_of(grid: Grid, trace: str) -> tuple[list[Task], dict[str, str]]:
    """The different points of the grid, each with the options that it reads, the last axis changing
    fastest; and by label why others cannot be, unless none can. trace: its digest. Raises
    CallerError for the first that is wrong."""
    if len(grid) > MOST_POINTS:
        raise CallerError(
            f"the grid: expected at most {MOST_POINTS:,} points, found {len(grid):,}; give fewer "
            "values"
        )
    given = dict(grid.base.texts)
    result: dict[str, Task] = {}
    unread: dict[str, CallerError] = {}
    too_large: dict[str, str] = {}
    read: set[str] = set()
    for chosen in product(*grid.axes.values()):
        varied = dict(zip(grid.axes, chosen, strict=True))
        texts = given | {name: value.text for name, value in varied.items()}
        values = {name: value.value for name, value in varied.items()}
        options = replace(grid.base, texts=tuple(texts.items()), **values)
        try:
            options, left_out = _with_what_is_read(options)
        except TooLarge as error:
            too_large[_label(varied)] = str(error)
            continue
        except CallerError as error:
            where = f" (point {_label(varied)})" if len(grid) > 1 else ""
            raise CallerError(f"{error}{where}") from None
        unread |= left_out
        read |= {*given} - {*left_out}
        varied = {name: value for name, value in varied.items() if name not in left_out}
        key = key_of(options, trace)
        if key not in result:
            point = {name: plain(value.value) for name, value in varied.items()}
            result[key] = Task(key, _label(varied), point, options, options.command)
    if not result:
        raise CallerError(next(iter(too_large.values())))
    for name, why in unread.items():
        if name not in read:
            raise why
    return list(result.values()), too_large


def _with_what_is_read(
    options: ReplayOptions,
) -> tuple[ReplayOptions, dict[str, CallerError]]:
    """The options that a point reads, and why others are not read, by name."""
    scheme, _, settings = (options.storage or SIMULATED).partition(":")
    if scheme != SIMULATED:
        raise CallerError(
            f"--storage: expected {SIMULATED}:..., since a point would find what others have "
            f"stored, found {options.storage}; give a simulated one"
        )
    simulated(settings, seed=0)
    left_out: dict[str, CallerError] = {}
    while True:
        try:
            resolve(options, opened_once(options))
            return options, left_out
        except Unread as error:
            if error.field not in dict(options.texts):
                raise
            left_out[error.field] = error
            options = options.without(error.field)


def _label(varied: Mapping[str, Value]) -> str:
    """The name of a point for people, from the texts of its options."""
    words = (f"{name.replace('_', '-')}={value.text}" for name, value in varied.items())
    return " ".join(words) or "base"


def header_of(grid: Grid, command: str) -> dict[str, Any]:
    """What the file of a sweep begins with."""
    base = grid.base
    return {
        "hicache_version": VERSION,
        "decisions": decisions(),
        "command": command,
        "trace": {"path": base.trace, "sha256": digest_of(base.trace)},
        "base": _canonical(base),
        "grid": {name: [plain(value.value) for value in axis] for name, axis in grid.axes.items()},
    }


# -- points in workers


def replayed(loaded: plugins.Loaded, task: Task) -> Document:
    """The document of a point, in a worker."""
    plugins.load(loaded)
    # reference counting frees nearly everything of a replay, and a collection scans its tree
    gc.set_threshold(*_RARE)
    trace = opened_once(task.options)
    started = time.perf_counter()
    settings, paged = resolve(task.options, trace)
    hopeless = None
    if task.attain is not None and settings.slo is not None:
        hopeless = Hopeless(settings.slo, int((1 - task.attain) * len(paged.jobs)))
    play = playing.run(
        *(trace, paged, settings, task.command),
        shown=lambda *_: nullcontext(lambda done: None),
        judge=hopeless,
        start=started,
    )
    named = {"kind": POINT, "key": task.key, "label": task.label, "point": task.point}
    if hopeless is not None and hopeless.stopped:
        part = {"ended": hopeless.ended, "missed": hopeless.missed, "of": len(paged.jobs)}
        return head(task.command, complete=False) | named | {"stopped": part}
    if play.interrupted:
        raise KeyboardInterrupt
    result = charted(play, result_of(play), task.label)
    results: Document = head(task.command, complete=True) | named | document(result)
    return results


class SweepFile:
    """JSON lines, each added when it is known, so what is done stays whatever ends the command. A
    line that was cut off (a killed command, a full disk) is removed when the file is opened again.

    done: documents of points, by key. repaired: whether a line that was cut off had to go.
    """

    def __init__(self, path: str, stream: BinaryIO) -> None:
        self.done: dict[str, Document] = {}
        self.repaired = False
        self._path, self._stream = path, stream
        self._headers: list[Document] = []
        self._read()

    @classmethod
    @contextmanager
    def opened(cls, path: str) -> Iterator[Self]:
        """The file at this path, made if it is missing. Raises CallerError if it cannot be, if it
        is another one, or if another command writes to it."""
        try:
            stream = open(path, "a+b")  # noqa: SIM115
        except OSError as error:
            raise unwritable(path, error.strerror) from None
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise unwritable(path, "another command that writes to it") from None
            yield cls(path, stream)

    def begin(self, values: Mapping[str, Any]) -> None:
        """Adds the header, unless the last grid was the same one. Raises CallerError if the file
        belongs to another trace or another version of this project."""
        header: Document = {"schema": SCHEMA, "kind": KIND, **values}
        first, last = (self._headers or [header])[0], (self._headers or [{}])[-1]
        same = {
            "the trace": first["trace"]["sha256"] == header["trace"]["sha256"],
            "this version": first.get("decisions") == header["decisions"],
        }
        for what, is_same in same.items():
            if not is_same:
                raise CallerError(
                    f"{self._path}: expected a sweep of {what}, found one of another; name another "
                    "file"
                )
        if any(last.get(key) != header[key] for key in ("base", "grid")):
            self.append(header)

    def append(self, line: Mapping[str, Any]) -> None:
        try:
            with deferred():  # Ctrl-C would cut the line off
                self._stream.write(json.dumps(line).encode() + b"\n")
                self._stream.flush()
                os.fsync(self._stream.fileno())
        except OSError as error:
            raise unwritable(self._path, error.strerror) from None

    def _read(self) -> None:
        end = 0
        self._stream.seek(0)
        for number, line in enumerate(self._stream, 1):
            full = line.endswith(b"\n")
            if not full and (number > 1 or _BEGIN.startswith(line[: len(_BEGIN)])):
                self.repaired = True
                self._stream.truncate(end)
                break
            end += len(line)
            try:
                if not full:
                    raise ValueError("cut off")
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                expected = "a point or a header" if self._headers else "the header"
                raise CallerError(
                    f"{self._path}:{number}: expected {expected} of a sweep, found "
                    f"{line[:40].decode(errors='replace')!a}; name another file"
                ) from None
        self._stream.seek(0, os.SEEK_END)

    def _take(self, line: Any) -> None:
        """Takes a line. Raises one of the errors of a wrong shape if it is none of a sweep."""
        if line["kind"] == KIND:
            line["trace"]["sha256"]
            self._headers.append(line)
        elif line["kind"] == POINT and self._headers:
            self.done[line["key"]] = line
        else:
            raise ValueError


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


def measured(tasks: Sequence[Task], how: How, header: Mapping[str, Any]) -> Measured:
    """Runs the tasks that the sweep file lacks, and keeps each document there as it
    arrives. header: of the file."""
    done: dict[str, Document] = {}
    code, error = 0, None
    with ExitStack() as stack:
        file = None
        if how.path is not None:
            file = stack.enter_context(SweepFile.opened(how.path))
            file.begin(header)
            for task in tasks:
                if (row := file.done.get(task.key)) is not None:
                    done[task.key] = row | {"label": task.label, "point": task.point}
            if file.repaired:
                print_error(f"{how.path}: the last line was cut off; its point runs again")
        if done and len(done) < len(tasks):
            print_error(f"{len(done)} of {len(tasks)} points are done already")
        missing = [task for task in tasks if task.key not in done]
        shown = stack.enter_context(progress(how.label, len(missing), "points"))
        try:
            with closing(_run(missing, how)) as points:
                for number, point in enumerate(points, 1):
                    if file is not None:
                        file.append(point)
                    done[point["key"]] = point
                    shown(number)
        except KeyboardInterrupt:
            code = INTERRUPTED
        except Exception as raised:  # what is done is shown before it is raised again
            error = raised
    if len(done) < len(tasks):
        again = "; the same command does the rest" if how.path else ""
        why = "interrupted: " if code else ""
        print_error(f"{why}{len(done)} of {len(tasks)} points are done{again}")
    return Measured([done[task.key] for task in tasks if task.key in done], code, error)


def _run(tasks: Sequence[Task], how: How) -> Generator[Document]:
    """The document of each task, in any order. A lost worker ends the run with WorkerLost, which
    names a point."""
    workers = how.jobs
    if how.executor == executors.LOCAL:
        workers = min(workers or cores(), len(tasks)) or 1
    options = executors.JobOptions(_lost, forked=True)
    work = partial(replayed, plugins.environment())
    yield from executors.run(how.executor, workers, work, tasks, options)


def _lost(task: Task, open_tasks: int, how_ended: str) -> str:
    others = f" and {open_tasks - 1} others" if open_tasks > 1 else ""
    return (
        f"a worker was lost within the point {task.label}{others}: {how_ended}; what is done is "
        "kept, and --jobs 1 does the rest in one process"
    )
