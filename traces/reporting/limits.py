"""What limits a replay, and what to try next. docs/replay.md explains both for users.

    offered load = (last first token - first arrival) / (last arrival - first arrival)
    queueing     = time that requests waited for a forward pass / time to first token, summed

Only requests with an arrival time count for the load: a request that waits for another one (a
closed loop) slows down with the machine. A machine that keeps up has an offered load of 1, plus
the latency of the last request. It is overloaded if requests spent most of the time to their first
token in the queue, and if it took a tenth longer than the arrivals or its queue was long nearly all
the time: nine tenths of the requests waited ten times as long as their passes took.

An option is offered only where a replay with it runs, and its effect is known without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor, log10

from hicache import models
from hicache.core.components.base import residency
from hicache.core.errors import CallerError
from sim.engine.sequence import RequestResult
from sim.times import base as times
from sim.times.base import Parallelism

from ..expected.table import MOST_QUEUEING
from ..formats._jobs import Jobs
from ..formats.base import Paged
from ..replaying import following as caps
from ..replaying.config import ReplayConfig
from ..replaying.options import ReplayOptions
from ..replaying.run import Run
from ..replaying.sizes import memory_of
from ..results.record import Limit, Pair, Result
from ..terminal.tables import percent
from .amounts import gigabytes

MOST_LOAD = 1.1
_MOST_WAITING = 0.9
_LEAST_REQUESTS = 10
_ROOM = 0.9  # of what the machine can do, for the advice
_MANY = 0.5  # refusals for each request
_NO_LACK = ("arriving", "fetching")  # refused until pages have arrived: no lack of pages
_NEGLIGIBLE = 0.01  # of the prompt tokens
_MOST_RATIO = 16
_MOST_TRIES = 3


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
    def queued(self) -> bool:
        """Whether requests mostly wait although the machine is not overloaded."""
        return not self.overloaded and self.queueing > MOST_QUEUEING


def load_of_run(jobs: Jobs, settings: ReplayConfig, run: Run) -> Load | None:
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
    options: ReplayOptions,
    settings: ReplayConfig,
    paged: Paged,
    run: Run,
    found: Result,
    load: Load | None,
) -> Limit:
    """found: the figures of the run. load: None in `hits` mode, which has no clock."""
    whole, load = found.whole, load or Load(0.0, 0.0)
    if not whole.requests:
        return Limit("nothing_served", "no request was served")
    queueing = f"{percent(load.queueing, 1)} of TTFT is queueing"
    if load.overloaded and load.offered <= MOST_LOAD:
        return Limit("load", f"queue long all the time, {queueing}")
    if load.overloaded:
        why = f"offered {load.offered:.1f} x what the machine can do, {queueing}"
        return Limit("load", why, (_eased(load, settings),))
    cached = _of_cache(options, settings, paged, run, found)
    refused = sum(n for why, n in found.refused.items() if not why.startswith(_NO_LACK))
    if load.queued and refused >= _MANY * whole.requests:
        waits = f"{load.waits:,.0f} x the time of computing" if load.waits else queueing
        tries = (*_device_pool(options, settings), *cached.tries)
        why = f"queue {waits}, {refused:,} x no pages"
        return Limit("device_memory", why, tries[:_MOST_TRIES])
    return cached


def _eased(load: Load, settings: ReplayConfig) -> str:
    """The option with which the machine keeps up."""
    rate = settings.load.request_rate
    if rate is not None:
        return f"--request-rate {slower(load, rate)}"
    return f"--speed {slower(load, settings.speed)}"


def _of_cache(
    options: ReplayOptions, settings: ReplayConfig, paged: Paged, run: Run, found: Result
) -> Limit:
    """What limits the hits."""
    whole = found.whole
    if not whole.ceiling_tokens:
        return Limit("no_repeats", "no prompt shares a whole page with an earlier one")
    if whole.lost_rate < _NEGLIGIBLE:
        tries = _less_host(options, settings, found)
        return Limit("new_tokens", "what did not hit was new, more memory cannot help", tries)
    lost = f"{whole.lost_tokens:,} lost tokens"
    if (short := _short_of(settings, run, found)) is not None:
        name, tokens, tries = short
        missing = "state" if residency(name) == "state" else "window"
        return Limit(name, f"no {missing} of {name} for {tokens:,} of {lost}", tries)
    host = _more_host(options, settings, paged, found)
    if (reason := _most_lost(found)) is not None:
        tries = _of_storage(settings, reason) or host
        return Limit(reason, f"{lost}, mostly {reason.replace('_', ' ')}", tries)
    if found.evicted_pages == Pair(0, 0):
        return Limit("not_ready", f"{lost} were still being computed, nothing was evicted")
    return Limit("cache_memory", f"{lost} were evicted or not ready", host)


def _short_of(
    settings: ReplayConfig, run: Run, found: Result
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
    return name, tokens, (option,) if use.evicted != Pair(0, 0) else ()


def _most_lost(found: Result) -> str | None:
    """The reason of at least half of the tokens that were lost; None without one."""
    if found.storage is None or not found.storage.lost_tokens:
        return None
    lost = found.storage.lost_tokens
    reason, most = next(iter(lost.items()))
    return reason if 2 * most.tokens >= sum(one.tokens for one in lost.values()) else None


def _of_storage(settings: ReplayConfig, reason: str) -> tuple[str, ...]:
    """The option against a reason of storage; empty without one."""
    storage = settings.storage
    assert storage is not None
    size = storage.options.size_bytes
    tried = {"too_short": "--prefetch-threshold 0", caps.NEVER_BACKED_UP: _WRITE_THROUGH}
    if storage.policy != "wait_complete":
        tried["late"] = "--prefetch wait_complete"
    if size:
        tried["evicted_from_storage"] = f"--storage-size {gigabytes(2 * size, '')}"
    return (tried[reason],) if reason in tried else ()


_WRITE_THROUGH = "--write-policy write_through"


def _ratio(settings: ReplayConfig) -> Fraction:
    """Host pages, without room for exchanges, for each device page."""
    core = settings.core
    exchange = core.exchange_pages[0] if core.exchange_pages else 0
    return Fraction(core.host_pages[0] - exchange, core.device_pages[0])


def _more_host(
    options: ReplayOptions, settings: ReplayConfig, paged: Paged, found: Result
) -> tuple[str, ...]:
    """A host pool that holds every page of the trace; empty where it would be very large, or where
    nothing was evicted from the last tier."""
    ratio, device = _ratio(settings), settings.core.device_pages[0]
    if not (found.evicted_pages.host if ratio else found.evicted_pages.device):
        return ()
    chains = filter(len, map(paged.chain, paged.jobs))
    wanted = Fraction(1 + max((int(chain.max()) for chain in chains), default=0), device)
    if not ratio < wanted <= _MOST_RATIO:
        return ()
    return (f"{_sized(options, wanted, ratio)}  # holds every page of the trace",)


def _less_host(options: ReplayOptions, settings: ReplayConfig, found: Result) -> tuple[str, ...]:
    ratio, evicted = _ratio(settings), found.evicted_pages
    if not ratio or settings.storage is not None:
        return ()  # storage needs host memory
    if not evicted.device:
        return (f"{_sized(options, Fraction(0), ratio)}  # the same hits",)
    return ()


def _sized(options: ReplayOptions, wanted: Fraction, ratio: Fraction) -> str:
    """The option for a host pool of `wanted` pages for each device page, in the unit given."""
    if options.host_bytes:
        return f"--host-bytes {gigabytes(round(options.host_bytes * wanted / ratio), '')}"
    if options.host_pages:
        return f"--host-pages {ceil(options.host_pages * wanted / ratio)}"
    return f"--host-ratio {ceil(100 * wanted) / 100:g}"


def _device_pool(options: ReplayOptions, settings: ReplayConfig) -> list[str]:
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
    return found


def _is_smaller_in_fp8(settings: ReplayConfig) -> bool:
    try:
        cached = models.cached_as(settings.model, "fp8")
    except CallerError:
        return False
    return cached.bytes_per_token(settings.tp) < settings.model.bytes_per_token(settings.tp)


def _can_share(settings: ReplayConfig, tp: int) -> bool:
    """Whether `tp` accelerators can share the model."""
    try:
        times.make(settings.times, settings.model, settings.hardware, Parallelism(tp))
    except CallerError:
        return False
    return True


def _fits_twice(settings: ReplayConfig) -> bool:
    """Whether twice the device pools fit the memory of the hardware."""
    pools = zip(settings.core.device_pages, settings.rank_page_bytes, strict=True)
    pool_bytes = sum(pages * size for pages, size in pools)
    return settings.weight_bytes + 2 * pool_bytes <= memory_of(settings.hardware)
