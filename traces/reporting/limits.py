"""What limits a replay, and what to try next (docs/replay.md): an option is offered only where a
replay with it runs, and its effect is known without one."""

from fractions import Fraction
from math import ceil, floor, log10

from hicache.core.components import residency
from hicache.core.errors import CallerError
from sim.times import base as times
from sim.times.base import Parallelism

from ..error_bars import MOST_QUEUEING
from ..formats.base import Paged
from ..replaying.account import BETWEEN
from ..replaying.config import ReplayConfig
from ..replaying.options import ReplayOptions
from ..replaying.sizes import memory_of
from ..results.record import Limit, Pair, Result
from . import percent
from .results import MOST_LOAD

_ROOM = 0.9  # of what the machine can do, for the advice
_MANY = 0.5  # refusals for each request
_BY_PREFIX = "prefix_aware"  # the router that sends a prompt where its prefix is
_NO_LACK = ("arriving", "fetching")  # refused until pages have arrived: no lack of pages
_NEGLIGIBLE = 0.01  # of the prompt tokens
_MOST_RATIO = 16
_MOST_TRIES = 3


def limit_of(options: ReplayOptions, settings: ReplayConfig, paged: Paged, result: Result) -> Limit:
    """The first limit that applies."""
    full, load = result.total, result.load
    if not full.requests:
        return Limit("nothing_served", "no request was served")
    cached = _of_cache(settings, paged, result)
    queueing = load.queueing_share if load else 0.0
    share = f"{percent(queueing, 1)} of TTFT is queueing"
    if load and load.overloaded:
        if load.offered is None or load.offered <= MOST_LOAD:
            return Limit("load", f"queue long all the time, {share}")
        rate = settings.load.request_rate
        option = "--speed" if rate is None else "--request-rate"
        slow = slower(load.offered, settings.speed if rate is None else rate)
        why = f"offered {load.offered:.1f} x what the machine can do, {share}"
        return Limit("load", why, (f"{option} {slow}",))
    refused = sum(n for why, n in result.refused.items() if not why.startswith(_NO_LACK))
    if queueing > MOST_QUEUEING and refused >= _MANY * full.requests:
        tries = (*_device_pool(options, settings), *cached.tries)[:_MOST_TRIES]
        return Limit("device_memory", f"{share}, {refused:,} x no pages", tries)
    return cached


def slower(offered: float, speed: Fraction) -> str:
    """The speed or rate at which the machine keeps up: one digit, rounded down."""
    wanted = float(speed) * _ROOM / offered
    places = -floor(log10(wanted))
    return f"{floor(wanted * 10**places) / 10**places:.{max(0, places)}f}"


def _of_cache(settings: ReplayConfig, paged: Paged, result: Result) -> Limit:
    """What limits the hits."""
    share, evicted, core = result.total, result.evicted_pages, settings.core
    exchange = core.exchange_pages[0] if core.exchange_pages else 0
    ratio = Fraction(core.host_pages[0] - exchange, core.device_pages[0])
    if not share.ceiling_tokens:
        return Limit("no_repeats", "no prompt shares a whole page with an earlier one")
    if share.lost_rate < _NEGLIGIBLE:
        idle = ratio and settings.storage is None and not evicted.device
        less = ["--host-ratio 0  # the same hits"] if idle else []
        return Limit("new_tokens", "what did not hit was new, more memory cannot help", less)
    lost = f"{share.lost_tokens:,} lost tokens"
    reason, tokens = next(iter(result.lost_by_reason.items()))
    mostly = 2 * tokens >= share.lost_tokens
    host = _more_host(settings, paged, result, ratio)
    if mostly and reason in core.components[1:]:
        use, is_state = result.components[reason], residency(reason) == "state"
        wanted = 2 * use.capacity.device * (1 if is_state else core.page_size)
        option = f"--{reason}-{'states' if is_state else 'tokens'} {wanted}"
        why = f"no {'state' if is_state else 'window'} of {reason} for {tokens:,} of {lost}"
        place = core.components.index(reason)
        pool = 2 * use.capacity.device * settings.rank_page_bytes[place]
        room = memory_of(settings.hardware) - settings.weight_bytes
        fits = use.evicted != Pair(0, 0) and 2 * pool <= room
        return Limit(reason, why, (option,) if fits else ())
    if mostly and reason == BETWEEN:
        why = f"{lost} lie behind the last state, one for {settings.pools.interval:,} tokens"
        return Limit(reason, why)
    if evicted == Pair(0, 0) and settings.fleet and settings.fleet.replicas > 1:
        apart = settings.fleet.router.name != _BY_PREFIX
        why = f"nothing was evicted: {lost} lie on other replicas, or were still being computed"
        return Limit("router", why, (f"--router {_BY_PREFIX.replace('_', '-')}",) if apart else ())
    if evicted == Pair(0, 0):
        return Limit("not_ready", f"{lost} were still being computed, nothing was evicted")
    return Limit("cache_memory", f"{lost} were evicted or not ready", host)


def _more_host(
    settings: ReplayConfig, paged: Paged, result: Result, ratio: Fraction
) -> tuple[str, ...]:
    """A host pool that holds every page of the trace; empty where it would be very large, or where
    nothing was evicted from the last tier. ratio: host pages for each device page."""
    if not (result.evicted_pages.host if ratio else result.evicted_pages.device):
        return ()
    chains = filter(len, map(paged.chain, paged.jobs))
    pages = 1 + max((int(chain.max()) for chain in chains), default=0)
    wanted = Fraction(pages, settings.core.device_pages[0])
    if not ratio < wanted <= _MOST_RATIO:
        return ()
    return (f"--host-ratio {ceil(100 * wanted) / 100:g}  # holds every page of the trace",)


def _device_pool(options: ReplayOptions, settings: ReplayConfig) -> tuple[str, ...]:
    """The option that gives requests more room on the device, where it can be used."""
    core, tp = settings.core, 2 * settings.tp
    if options.device_tokens is None and options.device_pages is None:
        try:
            times.make(settings.times, settings.model, settings.hardware, Parallelism(tp))
        except CallerError:
            return ()
        return (f"--tp {tp}",)
    pools = zip(core.device_pages, settings.rank_page_bytes, strict=True)
    pool_bytes = sum(pages * size for pages, size in pools)
    if settings.weight_bytes + 2 * pool_bytes > memory_of(settings.hardware):
        return ()
    pages = 2 * core.device_pages[0]
    in_tokens = options.device_tokens is not None
    return (
        f"--device-tokens {pages * core.page_size}" if in_tokens else f"--device-pages {pages}",
    )
