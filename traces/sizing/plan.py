"""Which replays answer how much memory a server needs: a ladder of host sizes, and what else there
is to change at the size that is about enough.

    no host memory       what the device does alone
    a ladder             sizes in powers of two, up to what brings nearly every hit that there is
    other write policies at the knee of the ladder: the smallest size with most of the hits
    a faster link        there, too: whether the bandwidth of the host link binds
    a higher load        there and without host memory: where each of them stops to serve in time
    twice the GPUs       without host memory: what they would buy instead
    storage              behind small sizes, if it was named

The curve of the trace tells all of that beforehand, so every point is known before the first one
runs. Does not run them; see sweeping/running.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from hicache.core import registry

from ..curves.distances import Curve
from ..replaying.options import WRITE_POLICY, ReplayOptions
from ..sweeping.grid import Point, Value
from ..terminal.options import Bandwidth

MOST_SIZES = 6
NEARLY_ALL = Fraction(99, 100)  # of the hits of an unbounded cache
MOST = 0.9  # of what host memory adds
LOADS = (Fraction(5, 4), Fraction(3, 2))  # multiples of the load
_LENGTHS_ONLY = tuple(Fraction(load, 2) for load in (1, 2, 4, 8, 16, 32))
_HOST = ("write_policy", "load_threshold", "load_quota", "load_groups", "host_bandwidth")
_STORAGE = (
    *("storage", "storage_size", "storage_bandwidth", "storage_latency", "prefetch"),
    *("prefetch_threshold", "prefetch_budget", "prefetch_limit"),
)


@dataclass(frozen=True, slots=True)
class Ladder:
    """sizes: bytes of host memory, ascending, without 0. knee: the one for further points."""

    sizes: tuple[int, ...]
    knee: int


def ladder(
    curve: Curve,
    page_bytes: int,
    device_pages: int,
    given: Sequence[int] | None,
    exclusive: bool = False,
) -> Ladder:
    """page_bytes: of all ranks. given: sizes of the user, which may have 0. exclusive: whether host
    memory adds to the device; otherwise less of it than the device has holds nothing more."""
    sizes = tuple(sorted({size for size in given if size})) if given is not None else ()
    if given is None:
        top = enough_pages(curve)
        low = 1 if exclusive else device_pages
        sizes = _between(low * page_bytes, max(low, top) * page_bytes)
    if not sizes:
        return Ladder((), 0)

    def hits(size: int) -> int:
        return curve.hit_tokens(max(size // page_bytes, device_pages))

    base = curve.hit_tokens(device_pages)
    wanted = base + MOST * (hits(sizes[-1]) - base)
    return Ladder(sizes, next(size for size in sizes if hits(size) >= wanted))


def enough_pages(curve: Curve) -> int:
    """The smallest LRU cache with nearly all hits of an unbounded one."""
    wanted = curve.hit_tokens(curve.unique) * NEARLY_ALL
    low, high = 0, curve.unique
    while low < high:
        middle = (low + high) // 2
        if curve.hit_tokens(middle) >= wanted:
            high = middle
        else:
            low = middle + 1
    return low


def _between(low: int, high: int) -> tuple[int, ...]:
    """Powers of two from at least `low` to at least `high`, evenly chosen: one or more."""
    scales = (10**6, 10**9, 10**12, 10**15)
    known = [scale << power for scale in scales for power in range(10)]
    last = len(known) - 1
    top = next((place for place, size in enumerate(known) if size >= high), last)
    first = next((place for place, size in enumerate(known) if size >= low), last)
    places = range(first, top + 1)
    step = max(1.0, (len(places) - 1) / (MOST_SIZES - 1))
    chosen = {places[round(index * step)] for index in range(min(MOST_SIZES, len(places)))}
    return tuple(known[place] for place in sorted(chosen))


def points(base: ReplayOptions, steps: Ladder, speed: Fraction) -> list[tuple[str, Point]]:
    """The points with their labels, in the order of the table. base: without host memory."""
    stored: dict[str, Any] = {name: getattr(base, name) for name in _STORAGE}
    base = _without_host(replace(base, **_load_of(base, speed), **dict.fromkeys(_STORAGE)))  # type: ignore[arg-type]
    found = [("no host memory", _at(base))]
    found += [(f"{_size(size)} host", _at(base, host_bytes=size)) for size in steps.sizes]
    fixed = steps.knee
    if fixed:
        at = f"{_size(fixed)} host"
        used = base.write_policy or WRITE_POLICY
        for policy in registry.spellings(registry.WRITE_POLICIES):
            if policy != used:
                point = _at(base, host_bytes=fixed, write_policy=policy)
                found.append((f"{at}, {policy}", point))
        link = _at(base, host_bytes=fixed, host_bandwidth=_twice(base.host_bandwidth))
        found.append((f"{at}, host link 2x", link))
    for load in LOADS:
        faster = _load_of(base, speed, load)
        if load == LOADS[0] or not fixed:
            found.append((f"no host memory, {_load(load)}", _at(base, **faster)))
        if fixed:
            point = _at(base, host_bytes=fixed, **faster)
            found.append((f"{_size(fixed)} host, {_load(load)}", point))
    found.append((f"no host memory, {gpus_of(2 * base.tp)}", _at(base, tp=2 * base.tp)))
    if stored["storage"] is not None:
        for size in [one for one in steps.sizes if one <= fixed][-3:]:
            point = _at(replace(base, **stored), host_bytes=size, storage=stored["storage"])
            found.append((f"{_size(size)} host, storage", point))
    return found


def _twice(link: Bandwidth | None) -> Bandwidth:
    if link is not None and link.bytes_per_s:
        return replace(link, bytes_per_s=2 * link.bytes_per_s)
    return Bandwidth(2 * (Fraction(1) if link is None else link.factor))


def followed(chosen: Sequence[tuple[str, Point]], steps: Ladder) -> set[str]:
    """The labels of the points that are worth a longer replay, which tells why tokens were lost:
    the first one, the knee and the largest size."""
    sizes = {0, steps.knee, *steps.sizes[-1:]}
    return {
        label
        for label, point in chosen
        if set(point.varied) == {"host_bytes"} and point.varied["host_bytes"].value in sizes
    }


def points_of_lengths(base: ReplayOptions, speed: Fraction) -> list[tuple[str, Point]]:
    """For a trace of lengths only: nothing can be reused, so load and GPUs are what varies."""
    base = _without_host(base)
    return [
        (
            f"{gpus_of(gpus)}, {_load(load)}",
            _at(base, **_load_of(base, speed, load), tp=gpus),
        )
        for gpus in (base.tp, 2 * base.tp)
        for load in _LENGTHS_ONLY
    ]


def _load_of(
    options: ReplayOptions, speed: Fraction, load: Fraction = Fraction(1)
) -> dict[str, Any]:
    """The option that makes so many times the load: what the user gave of the load, else the
    speed."""
    if options.request_rate is not None:
        return {"request_rate": options.request_rate * load}
    if options.concurrency is not None:
        return {"concurrency": ceil(options.concurrency * load)}
    return {"speed": speed * load}


def bare(options: ReplayOptions) -> ReplayOptions:
    """The options without host memory, and without what reads it."""
    nothing: dict[str, Any] = dict.fromkeys((*_HOST, *_STORAGE))
    return replace(_without_host(options), **{**nothing, "exclusive": False})


def _without_host(options: ReplayOptions) -> ReplayOptions:
    return replace(options, host_ratio=Fraction(0), host_bytes=None, host_pages=None)


def _at(base: ReplayOptions, **varied: Any) -> Point:
    """A point that differs from the base. Its host memory is always named."""
    varied = {"host_bytes": 0} | varied
    texts = {name: Value(_text(value), value) for name, value in varied.items()}
    given: dict[str, Any] = {"host_ratio": None}
    if not varied["host_bytes"]:
        given = {**dict.fromkeys(_HOST), "exclusive": False}
        varied = varied | {"host_bytes": None}
    return Point(replace(base, **given | varied), texts)


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else str(value)


def _size(size: int) -> str:
    unit, scale = ("TB", 10**12) if size >= 10**12 else ("GB", 10**9)
    return f"{size / scale:g} {unit}" if size >= 10**9 else f"{size / 10**6:g} MB"


def gpus_of(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


def _load(load: Fraction) -> str:
    return f"{float(load):g}x load"
