"""What limits a replay, and what to try next. docs/replay.md explains both for users.

    offered load = (last first token - first arrival) / (last arrival - first arrival)
    queueing     = time that requests waited for a forward pass / time to first token, summed

Only requests with an arrival time count for the load: a request that waits for another one (a
closed loop) slows down with the machine. A machine that keeps up has an offered load of 1, plus
the latency of the last request. It is overloaded if requests spent most of the time to their first
token in the queue, and if it took a tenth longer than the arrivals or its queue was long nearly all
the time: nine tenths of the requests waited ten times as long as their passes took.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from fractions import Fraction
from math import floor, log10

from hicache import models
from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from sim.engine.sequence import RequestResult
from sim.times import base as times
from sim.times.base import Parallelism

from ..expected.table import MOST_QUEUEING
from ..formats._jobs import Jobs
from ..replaying.config import ReplayConfig as Settings
from ..replaying.options import ReplayOptions
from ..replaying.run import NS_PER_S, Run
from ..replaying.sizes import memory_of
from ..results.record import LoadFigures, Result
from ..terminal.tables import percent
from . import stored
from .amounts import gigabytes

MOST_LOAD = 1.1
_MOST_WAITING = 0.9
_LEAST_REQUESTS = 10
_ROOM = 0.9  # of what the machine can do, for the advice
_MANY = 0.5  # refusals for each request
_NO_LACK = ("arriving", "fetching")  # refused until pages have arrived: no lack of pages
_NEGLIGIBLE = 0.01  # of the prompt tokens
_MUCH = 0.1  # of the prompt tokens: one step of twice the memory hardly ever brings it back
_COPIES = 2  # half of a host of this ratio has room for copies of the device and nothing else
_MOST_TRIES = 2


@dataclass(frozen=True, slots=True)
class Load:
    """offered: multiples of what the machine can do, 0 if it cannot be told. See the module.

    waits: the time in the queue as a multiple of the time that passes computed; 0 without passes.
    waiting: the part of the requests that waited ten times as long as their passes took.
    """

    offered: float
    queueing: float
    waits: float = 0.0
    waiting: float = 0.0

    @property
    def overloaded(self) -> bool:
        too_much = self.offered > MOST_LOAD or self.waiting > _MOST_WAITING
        return too_much and self.queueing > MOST_QUEUEING

    @property
    def figures(self) -> LoadFigures:
        return LoadFigures(self.offered or None, self.queueing, self.overloaded)

    @property
    def queued(self) -> bool:
        """Whether requests mostly wait although the machine is not overloaded."""
        return not self.overloaded and self.queueing > MOST_QUEUEING


@dataclass(frozen=True, slots=True)
class Limit:
    """by: docs/json.md has the values. why: its figures, for a row. tries: options, the best one
    first."""

    by: str
    why: str
    tries: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        return f"{self.by.replace('_', ' ')}: {self.why}"


def load_of_run(jobs: Jobs, settings: Settings, run: Run) -> Load | None:
    """The load that the trace offered; None without a clock."""
    if run.latency is None:
        return None
    return load_of(jobs, run.latency.requests, settings.load.concurrency)


def load_of(jobs: Jobs, results: Sequence[RequestResult], concurrency: int = 0) -> Load:
    """The load of the requests that were served. jobs: of the trace, at least these. concurrency: a
    fixed one, with which every request waits for another."""
    timed = (jobs.afters < 0) & (not concurrency)
    served = [one for one in results if timed[one.request]]
    ttft_ns = sum(one.first_token_ns - one.arrival_ns for one in results)
    queue_ns = sum(one.queue_ns for one in results)
    compute_ns = sum(one.compute_ns for one in results)
    queueing = queue_ns / ttft_ns if ttft_ns else 0.0
    waits = queue_ns / compute_ns if compute_ns else 0.0
    first = min((one.arrival_ns for one in served), default=0)
    span_ns = max((one.arrival_ns for one in served), default=0) - first
    if len(served) < _LEAST_REQUESTS or not span_ns:
        return Load(0.0, queueing, waits)
    load = (max(one.first_token_ns for one in served) - first) / span_ns
    long = sum(11 * one.queue_ns > 10 * (one.first_token_ns - one.arrival_ns) for one in served)
    return Load(load, queueing, waits, long / len(served))


def slower(load: Load, speed: Fraction) -> str:
    """The speed or rate at which the machine keeps up: one digit, rounded down."""
    wanted = float(speed) * _ROOM / load.offered
    digits = -floor(log10(wanted))
    return f"{floor(wanted * 10**digits) / 10**digits:.{max(0, digits)}f}"


def limit_of(
    options: ReplayOptions, settings: Settings, run: Run, found: Result, load: Load | None
) -> Limit:
    """found: the figures of the run. load: None in `hits` mode, which has no clock."""
    share, load = found.whole, load or Load(0.0, 0.0)
    if not share.requests:
        return Limit("nothing_served", "no request was served")
    if load.overloaded:
        long = load.offered <= MOST_LOAD
        offered = f"offered {load.offered:.1f} x what the machine can do"
        why = f"{'queue long all the time' if long else offered}, {_queueing(load)}"
        return Limit("load", why, (_eased(load, settings),))
    cached = _of_cache(options, settings, run, found)
    refused = sum(n for why, n in found.refused.items() if not why.startswith(_NO_LACK))
    if load.queued and refused >= _MANY * share.requests:
        waits = f"{load.waits:,.0f} x the time of computing" if load.waits else _queueing(load)
        room = " or ".join(_device_pool(options, settings, load))
        tries = tuple(one for one in (room, *cached.tries) if one)
        why = f"queue {waits}, {refused:,} x no pages"
        return Limit("device_memory", why, tries[:_MOST_TRIES])
    return cached


def _queueing(load: Load) -> str:
    return f"{percent(load.queueing, 1)} of TTFT is queueing"


def _eased(load: Load, settings: Settings) -> str:
    """The option with which the machine keeps up."""
    rate = settings.load.request_rate
    if rate is not None:
        return f"--request-rate {slower(load, rate)}"
    return f"--speed {slower(load, settings.speed)}"


def _of_cache(options: ReplayOptions, settings: Settings, run: Run, found: Result) -> Limit:
    """What limits the hits."""
    share = found.whole
    if not share.ceiling_tokens:
        return Limit("no_repeats", "no prompt shares a whole page with an earlier one")
    host = _host_memory(options, settings, found)
    if share.lost_rate < _NEGLIGIBLE:
        return Limit("new_tokens", "what did not hit was new, more memory cannot help", host)
    lost = f"{share.lost_tokens:,} lost tokens"
    if (short := _short_of(settings, run, found)) is not None:
        name, tokens, tries = short
        missing = "state" if residency(name) == "state" else "window"
        return Limit(name, f"no {missing} of {name} for {tokens:,} of {lost}", tries)
    if (reason := stored.most_lost(found.storage)) is not None:
        why = f"{lost}, mostly {stored.reason_in_words(reason)}"
        return Limit(reason, why, stored.advice(settings, reason) or host)
    if not any(astuple(found.evicted_pages)):
        return Limit("not_ready", f"{lost} were still being computed, nothing was evicted")
    return Limit("cache_memory", f"{lost} were evicted or not ready", host)


def _short_of(
    settings: Settings, run: Run, found: Result
) -> tuple[str, int, tuple[str, ...]] | None:
    """The component other than full that lost at least half of the lost tokens where it alone ended
    the hit: its name, these tokens, and what to try, nothing if it evicted nothing."""
    if len(run.components) < 2:
        return None
    size, capped = settings.core.page_size, run.lookups.capped()
    _, *others = run.components
    name = max(others, key=lambda one: capped[one].lost_pages)
    use, tokens = run.components[name], capped[name].lost_pages * size
    if 2 * tokens < found.whole.lost_tokens:
        return None
    state = residency(name) == "state"
    wanted = 2 * use.capacity.device * (1 if state else size)
    option = f"--{name}-{'states' if state else 'tokens'} {wanted}"
    return name, tokens, (option,) if any(astuple(use.evicted)) else ()


def saved_s(settings: Settings, run: Run) -> float:
    """Seconds of forward passes that the host hits saved, each request computed on its own."""
    costs = settings.time_model
    saved_ns = 0
    for row in run.account.rows():
        if row.host:
            with_host = [(row.device + row.host, row.input_tokens)]
            without = costs.layer_ns([(row.device, row.input_tokens)], 0, 0)
            saved_ns += without - costs.layer_ns(with_host, 0, 0)
    return saved_ns * costs.layers / NS_PER_S


def _host_memory(options: ReplayOptions, settings: Settings, found: Result) -> tuple[str, ...]:
    """More or less host memory, in the unit that was given; empty where nothing suggests itself."""
    core, evicted, lost = settings.core, found.evicted_pages, found.whole.lost_rate
    exchange = core.exchange_pages[0] if core.exchange_pages else 0
    ratio = Fraction(core.host_pages[0] - exchange, core.device_pages[0])
    if lost >= _NEGLIGIBLE:
        if not (evicted.host if ratio else evicted.device):
            return ()
        if lost >= _MUCH:
            return ("more host memory (hicache sweep with --host-bytes 0,256GB,1TB)",)
        return (_sized(options, max(2 * ratio, Fraction(_COPIES)), ratio),)
    if not ratio or settings.storage is not None:
        return ()  # storage needs host memory
    if not evicted.device:
        return ("--host-ratio 0 (the same hits)",)
    if not evicted.host and ratio > _COPIES:
        return (f"{_sized(options, ratio / 2, ratio)} (may be enough)",)
    return ()


def _sized(options: ReplayOptions, wanted: Fraction, ratio: Fraction) -> str:
    """The option for a host pool of `wanted`, in the unit of the one that was given."""
    if options.host_bytes is None or not ratio:
        return f"--host-ratio {float(wanted):.2f}".rstrip("0").rstrip(".")
    return f"--host-bytes {gigabytes(round(options.host_bytes * wanted / ratio), '')}"


def _device_pool(options: ReplayOptions, settings: Settings, load: Load) -> list[str]:
    """Options that give requests more room on the device, each only where it can be used."""
    found = []
    if options.device_tokens is None and options.device_pages is None:
        if _is_smaller_in_fp8(settings):
            found.append("--kv-dtype fp8")
        if _can_share(settings, 2 * settings.tp):
            found.append(f"--tp {2 * settings.tp}")
    elif _fits_twice(settings):
        pages = 2 * settings.core.device_pages[0]
        given_tokens = options.device_tokens is not None
        tokens = f"--device-tokens {pages * settings.core.page_size}"
        found.append(tokens if given_tokens else f"--device-pages {pages}")
    if settings.load.concurrency:
        found.append("a lower --concurrency")
    elif load.offered:
        rate = settings.load.request_rate is not None
        found.append(f"a lower {'--request-rate' if rate else '--speed'}")
    return found


def _is_smaller_in_fp8(settings: Settings) -> bool:
    try:
        cached = models.cached_as(settings.model, "fp8")
    except CallerError:
        return False
    return cached.bytes_per_token(settings.tp) < settings.model.bytes_per_token(settings.tp)


def _can_share(settings: Settings, tp: int) -> bool:
    """Whether `tp` accelerators can share the model."""
    try:
        times.make(settings.times, settings.model, settings.hardware, Parallelism(tp))
    except CallerError:
        return False
    return True


def _fits_twice(settings: Settings) -> bool:
    """Whether twice the device pools fit the memory of the hardware."""
    pools = zip(settings.core.device_pages, settings.rank_page_bytes, strict=True)
    pool_bytes = sum(pages * size for pages, size in pools)
    return settings.weight_bytes + 2 * pool_bytes <= memory_of(settings.hardware)
