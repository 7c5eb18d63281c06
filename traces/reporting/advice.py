"""What to try next after a replay, as an option of the command.

Advice for the host pool is given in the user's own unit: a ratio, or bytes where bytes were given.
Does not say what the figures mean; see conclusions.
"""

from __future__ import annotations

from fractions import Fraction

from hicache import models
from hicache.core.errors import CallerError
from sim.times import base as times
from sim.times.base import Parallelism

from ..replaying.device_sizes import memory_of
from ..replaying.options import ReplayOptions
from ..replaying.settings import Settings
from ..results.record import Result
from .amounts import gigabytes
from .overload import Load

NEGLIGIBLE = 0.01  # of the prompt tokens
_MUCH = 0.1  # of the prompt tokens: one step of twice the memory hardly ever brings it back
_COPIES = 2  # half of a host of this ratio has room for copies of the device and nothing else


def host_memory(options: ReplayOptions, settings: Settings, found: Result) -> str:
    """More or less host memory; empty where nothing suggests itself."""
    ratio = _host_ratio(settings)
    evicted = found.evicted_pages
    lost = found.whole.lost_rate
    if lost >= NEGLIGIBLE:
        if not (evicted.host if ratio else evicted.device):
            return ""
        if lost >= _MUCH:
            return (
                "More host memory keeps more of them: `hicache sweep --host-bytes 0,256GB,1TB` "
                "replays the trace with several sizes."
            )
        if ratio:
            # with less, most host pages are copies of the device's
            wanted = max(2 * ratio, Fraction(_COPIES))
            times = "twice" if wanted == 2 * ratio else f"{_number(wanted / ratio)} times"
            return f"Try {_sized(options, wanted, ratio)}, {times} the host memory."
        return "Try --host-ratio 2, which adds host memory of twice the device's."
    if not ratio or settings.storage is not None:
        return ""  # storage needs host memory
    if not evicted.device:
        return "Try --host-ratio 0: without host memory the hits are the same."
    if not evicted.host and ratio > _COPIES:
        return f"Try {_sized(options, ratio / 2, ratio)}: half the host memory may be enough."
    return ""


def _sized(options: ReplayOptions, wanted: Fraction, ratio: Fraction) -> str:
    """The option for a host pool of `wanted`, in the unit of the one that was given."""
    if options.host_bytes is None:
        return f"--host-ratio {_number(wanted)}"
    size = round(options.host_bytes * wanted / ratio)
    return f"--host-bytes {gigabytes(size, '')}"


def _host_ratio(settings: Settings) -> Fraction:
    """What `--host-ratio` would have been: pages for exchanges come on top of it."""
    core = settings.core
    exchange = core.exchange_pages[0] if core.exchange_pages else 0
    return Fraction(core.host_pages[0] - exchange, core.device_pages[0])


def _number(value: Fraction) -> str:
    return f"{float(value):.2f}".rstrip("0").rstrip(".")


def device_pool(options: ReplayOptions, settings: Settings, load: Load) -> list[str]:
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
