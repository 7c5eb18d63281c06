"""What the model says of the traffic in a request log: its replay, and its hits with more memory.

The log is read up to its last whole line, as it was when that was asked. Requests that the server
had before the watch began only warm the cache. Those of an earlier life of the server (the log has
more than the server counts) are left out. Runs in a process of its own, one at a time. Does not
read metrics (see readings) or print.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from multiprocessing import get_context
from typing import BinaryIO, NamedTuple

import numpy as np

from hicache import registry
from hicache.core.errors import CallerError

from ..curves.distances import lru_curve
from ..formats._open import FORMATS, Source
from ..formats._rows import About
from ..formats._with_jobs import Chosen, TraceWithJobs
from ..formats.base import MAX_LINE_BYTES, Lines, Trace
from ..formats.vllm import NO_ANSWER
from ..replaying import modes
from ..replaying.load.trace import loaded
from ..replaying.options import HOST_SIZES, ReplayOptions
from ..replaying.run import Latency, spread
from ..replaying.settings import Settings, resolve
from ..reporting.results import result_of
from ..results.record import Spread
from ..terminal.processes import JobFailed, WorkerLost, results

BLOCK = 16  # tokens of a page, where the server has smaller ones or does not say it
_STEPS = (1.25, 1.5, 2, 3, 4, 6, 8, 16, 32, 64)  # times the memory
_MOST_POINTS = 6
_MOST_OF_IT = Fraction(9, 10)
_PIECE = 1 << 20
_UNDER_WAY = 16  # requests that may come between a look at the log and one at the metrics


class Log(NamedTuple):
    """A log as it is at one time. server: the name of its format. end: bytes. file: tells another
    file under the same name."""

    path: str
    server: str
    end: int
    file: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Begun:
    """Where counting begins. lines: of the log at that time. known: requests that the server had
    had; None if it does not say. anew: whether its cache was empty then, so that all it had had
    counts, too."""

    lines: int
    known: int | None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class Asked:
    """options: of the replay; their sizes are those of the server where it says them. output: mean
    tokens of an answer, for a log without answers; None if nobody knows. measured: the hit rate of
    the server by then."""

    options: ReplayOptions
    log: Log
    begun: Begun
    output: int | None
    measured: float | None


@dataclass(frozen=True, slots=True)
class Point:
    """hit_tokens: of an LRU cache of so many pages in all, of the counted requests."""

    pages: int
    hit_tokens: int


@dataclass(frozen=True, slots=True)
class More:
    """What more memory would have brought. now: the cache of the server. enough: the least that
    brings nine tenths of what can be gained; None where nothing can. points: larger ones,
    ascending; the last one hits all that any cache can."""

    now: Point
    enough: Point | None
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Predicted:
    """requests: that count; warming: those before them; unlogged: those that the server had had
    before and the log has not. times: by name, of the requests that ended. page_bytes: on all
    ranks. identity: whether the log says which prompts begin alike. error: to expect of the times,
    in a sentence. notes: in sentences, too. measured_rate: the hit rate of the server when the log
    was as it is here."""

    requests: int
    warming: int
    unlogged: int
    input_tokens: int
    device_hit_tokens: int
    host_hit_tokens: int
    times: Mapping[str, Spread]
    model: str
    hardware: str
    engine: str
    page_tokens: int
    page_bytes: int
    device_pages: int
    host_pages: int
    identity: bool
    more: More | None
    error: str
    notes: tuple[str, ...]
    measured_rate: float | None
    took_s: float

    @property
    def hit_rate(self) -> float | None:
        hits = self.device_hit_tokens + self.host_hit_tokens
        return hits / self.input_tokens if self.input_tokens and self.identity else None


# -- the log


def log_at(path: str, server: str) -> Log:
    """The log as it is now. Raises CallerError if it is no file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise CallerError(
            f"--log {path}: expected a readable file, found: {reason}; check the path"
        ) from None
    if not stat.S_ISREG(found.st_mode):
        found_is = "a folder" if stat.S_ISDIR(found.st_mode) else "a pipe or a device"
        raise CallerError(f"--log {path}: expected a file, found {found_is}; name another")
    return Log(path, server, found.st_size, (found.st_dev, found.st_ino))


def lines_of(log: Log) -> int:
    """The whole lines of the log."""
    lines, left = 0, log.end
    with _opened(log.path) as stream:
        while left > 0 and (piece := stream.read(min(left, _PIECE))):
            lines += piece.count(b"\n")
            left -= len(piece)
    return lines


def _opened(path: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise CallerError(
            f"--log {path}: expected a readable file, found: {error.strerror}; check the path"
        ) from None


def _whole_lines(stream: BinaryIO, end: int) -> Iterator[bytes]:
    """The lines up to `end`; the last one is left out while it is being written."""
    left = end
    while left > 0 and (line := stream.readline(min(left, MAX_LINE_BYTES + 1))):
        left -= len(line)
        if line.endswith(b"\n") or len(line) > MAX_LINE_BYTES:
            yield line


def _read(log: Log, page_tokens: int) -> Trace | None:
    """The requests in the log, their prompts in blocks of whole pages; None if there is no line
    yet. Raises CallerError."""
    entry = registry.load(FORMATS, log.server)
    for block_tokens in (page_tokens, 0):
        about = About(block_tokens)
        with _opened(log.path) as stream:
            raw = _whole_lines(stream, log.end)
            if not any(line.strip() for line in raw):
                return None
            stream.seek(0)
            about.lines = Lines(log.path, _whole_lines(stream, log.end))
            try:
                return Source(log.path, log.server, entry, iter([about.lines]), about).trace()
            except CallerError:
                if about.identity or not block_tokens:
                    raise  # a log of lengths only has no blocks
    return None


# -- the prediction


def predict(asked: Asked) -> Predicted | None:
    """None if no request is counted yet. Raises CallerError."""
    started = time.perf_counter()
    options = asked.options
    trace = _read(asked.log, options.page_size or BLOCK)
    if trace is None:
        return None
    trace, first, unlogged = _counted(trace, asked.begun)
    if len(trace.jobs) <= first:
        return None
    trace, notes = _answered(trace, asked.output)
    notes += tuple(one for one in trace.notes if not (notes and one.endswith(NO_ANSWER)))
    options = replace(options, page_size=options.page_size or BLOCK)
    options = replace(options, spread=asked.log.server == "vllm" or None)  # whole seconds
    trace = loaded(options, trace)
    settings, paged = resolve(options, trace)
    run = modes.run(
        trace, paged, settings, None, started, shown=lambda _, __: nullcontext(lambda _: None)
    )
    assert run.latency is not None
    rows = [row for row in run.account.rows() if row.request >= first]
    if settings.skipped.requests:
        notes += (f"{len(settings.skipped.requests):,} requests are larger than the cache.",)
    core = settings.core
    return Predicted(
        requests=len(trace.jobs) - first,
        warming=first,
        unlogged=unlogged,
        input_tokens=sum(row.input_tokens for row in rows),
        device_hit_tokens=sum(row.device for row in rows),
        host_hit_tokens=sum(row.host for row in rows),
        times=_times(run.latency, first),
        model=settings.model.name,
        hardware=settings.hardware.name,
        engine=settings.engine.profile.label,
        page_tokens=core.page_size,
        page_bytes=sum(settings.page_bytes_total.values()),
        device_pages=core.device_pages[0],
        host_pages=core.host_pages[0],
        identity=trace.identity,
        more=_more(settings, trace, first) if trace.identity else None,
        error=str((result_of(trace, settings, run).expected_error or {}).get("sentence", "")),
        notes=notes,
        measured_rate=asked.measured,
        took_s=time.perf_counter() - started,
    )


def _counted(trace: Trace, begun: Begun) -> tuple[Trace, int, int]:
    """The requests of this life of the server, how many of them only warm its cache, and how many
    more the server had had."""
    before = sum(line <= begun.lines for line in trace.line_numbers)
    known = before if begun.known is None else begun.known
    earlier, unlogged = (max(0, more) for more in (before - known, known - before))
    earlier, unlogged = (more * (more > _UNDER_WAY) for more in (earlier, unlogged))
    if earlier:
        trace = Chosen(trace, np.arange(earlier, len(trace.jobs), dtype=np.int64))
    return trace, 0 if begun.anew else before - earlier, unlogged


def _answered(trace: Trace, output: int | None) -> tuple[Trace, tuple[str, ...]]:
    """Answers of mean length where the log has none."""
    lengths = trace.jobs.output_lengths
    if output is None or output < 2 or not len(lengths) or int(lengths.max()) > 1:
        return trace, ()
    answered = trace.jobs.answered(output)
    said = f"The log has no answers: each is taken to have {output:,} tokens, the server's mean."
    return TraceWithJobs(trace, answered), (said,)


def _times(latency: Latency, first: int) -> dict[str, Spread]:
    """Of the requests from `first` on."""
    kept = np.array([one.request >= first for one in latency.requests], dtype=np.bool_)
    some = [one for one in latency.requests if one.request >= first]
    if not some:
        return {}
    decode = [one.finish_ns - one.first_token_ns for one in some]
    steps = [one.output_length - 1 for one in some]
    each = [time // count for time, count in zip(decode, steps, strict=True) if count]
    figures = replace(
        latency,
        requests=tuple(some),
        ttft_ns=latency.ttft_ns[kept],
        queue_ns=latency.queue_ns[kept],
        load_ns=latency.load_ns[kept],
        compute_ns=latency.compute_ns[kept],
        tpot_ns=np.array(each, dtype=np.int64),
    ).figures
    whole = np.array([one.finish_ns - one.arrival_ns for one in some], dtype=np.int64)
    found = {"ttft": figures.ttft, "queue": figures.queue, "e2e": spread(whole)}
    return found | ({"tpot": figures.tpot, "itl": figures.itl} if each else {})


def _more(settings: Settings, trace: Trace, first: int) -> More:
    """Hits of one LRU cache of the server's size and of larger ones."""
    core = settings.core
    curve = lru_curve(trace.paged(core.page_size), first)
    device, host = core.device_pages[0], core.host_pages[0]
    now = device + host if core.exchange_pages else max(device, host)
    have, most, last = curve.hit_tokens(now), curve.unbounded, curve.working_set
    if have >= most:
        return More(Point(now, have), None, ())
    enough = curve.pages_for(have + _MOST_OF_IT * (most - have))
    sizes = sorted({*(int(now * step) for step in _STEPS if now * step < last), last})
    sizes = [*sizes[: _MOST_POINTS - 1], last] if len(sizes) > _MOST_POINTS else sizes
    return More(
        Point(now, have),
        Point(enough, curve.hit_tokens(enough)),
        tuple(Point(size, curve.hit_tokens(size)) for size in sizes),
    )


def with_sizes(
    options: ReplayOptions, server: str, page: int | None, tokens: int | None, host: int | None
) -> ReplayOptions:
    """The options with what the server says of itself where the user says nothing. page: tokens of
    a page; tokens: of the cache, on the device; host: in host memory."""
    pages = options.page_size or (max(page, BLOCK) if page and server == "sglang" else page)
    found = replace(options, page_size=pages, check="off", skip_too_large=True)
    if options.engine is None:
        found = replace(found, engine=server)
    if options.device_pages is None and options.device_tokens is None and tokens:
        found = replace(found, device_tokens=tokens)
    if all(getattr(options, name) is None for name in HOST_SIZES):
        sized = host // (pages or BLOCK) if host else 0
        found = replace(found, **({"host_pages": sized} if sized else {"host_ratio": Fraction(0)}))
    return found


# -- in a process


class Predictor:
    """Predicts in a process of its own, one prediction at a time. found: the last one that was
    made. failed: why the last one that was asked for could not be, in one line."""

    def __init__(self) -> None:
        self.found: Predicted | None = None
        self.failed = ""
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def begin(self, asked: Asked) -> None:
        """Begins a prediction; none may be under way."""
        self._stopped.clear()
        self._thread = threading.Thread(target=self._run, args=(asked,), daemon=True)
        self._thread.start()

    def wait(self, each: Callable[[], None] = lambda: None) -> None:
        """Waits for the one under way. each: is called now and then."""
        while self._thread is not None and self._thread.is_alive():
            self._thread.join(0.2)
            each()

    def stop(self) -> None:
        """Ends the one under way; its result is lost."""
        self._stopped.set()
        self.wait()

    def forget(self) -> None:
        """What was predicted no longer counts."""
        self.stop()
        self.found, self.failed = None, ""

    def _run(self, asked: Asked) -> None:
        try:
            made = results(get_context("spawn"), predict, iter([asked]), 1, watch=self._check)
            self.found, self.failed = next(made) or self.found, ""
            made.close()
        except _Stopped:
            pass
        except (CallerError, WorkerLost) as error:
            self.failed = str(error).splitlines()[0]
        except Exception as error:  # a defect; the watch goes on
            cause = error.__cause__ if isinstance(error.__cause__, JobFailed) else error
            self.failed = f"the prediction failed: {str(cause).strip().splitlines()[-1]}"

    def _check(self) -> None:
        if self._stopped.is_set():
            raise _Stopped


class _Stopped(Exception):
    pass
