"""Which replays answer how much memory a server needs: a ladder of host sizes, and what else there
is to change at the size that is about enough.

    no host memory       what the device does alone
    a ladder             sizes in powers of two, from what adds hits to what brings nearly all
    other write policies at the knee of the ladder: the smallest size with most of the hits
    a faster link        there, too: whether the bandwidth of the host link binds
    twice the GPUs       without host memory: what they would buy instead
    storage              behind small sizes, if it was named

The curve of the trace tells the sizes beforehand. Does not choose loads (see search) or run points
(see study).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import Any

from hicache import registry

from ..curves.distances import Curve
from ..formats.base import Paged, Trace
from ..replaying.declared.needs import Need
from ..replaying.defaults import WRITE_POLICY
from ..replaying.load.slo import Slo
from ..replaying.options import ReplayOptions, that_need
from ..replaying.settings import Settings, resolve
from ..sweeping.grid import Point, Value
from ..terminal.options import Bandwidth

MOST_SIZES = 4
NEARLY_ALL = Fraction(19, 20)  # of the hits of an unbounded cache
MOST = 0.9  # of what host memory adds
LITTLE = 0.01  # of all prompt tokens: a size that adds less is not tried
Named = tuple[str, Point]
_STORAGE = ("storage", *that_need(Need.STORE))
OF_HOST = tuple(name for name in that_need(Need.HOST) if name != "storage")


@dataclass(frozen=True, slots=True)
class Ladder:
    """sizes: bytes of host memory, ascending, without 0. knee: the one for further points."""

    sizes: tuple[int, ...]
    knee: int


def ladder(
    curve: Curve,
    input_tokens: int,
    page_bytes: int,
    device_pages: int,
    given: Sequence[int] | None,
    exclusive: bool = False,
) -> Ladder:
    """page_bytes: of all ranks. given: sizes of the user, which may have 0. exclusive: whether host
    memory adds to the device; otherwise less of it than the device has holds nothing more."""
    sizes = tuple(sorted({size for size in given if size})) if given is not None else ()
    if given is None:
        if device_is_enough(curve, input_tokens, device_pages):
            return Ladder((), 0)
        top = max(1, curve.pages_for(NEARLY_ALL * curve.unbounded))
        low = curve.pages_for(curve.hit_tokens(device_pages) + LITTLE * input_tokens)
        if exclusive:
            low, top = max(0, low - device_pages), max(1, top - device_pages)
        low = max(1 if exclusive else device_pages, min(low or top, top))
        sizes = _between(low * page_bytes, top * page_bytes)
    if not sizes:
        return Ladder((), 0)

    def hits(size: int) -> int:
        pages = size // page_bytes
        return curve.hit_tokens(pages + device_pages if exclusive else max(pages, device_pages))

    base = curve.hit_tokens(device_pages)
    wanted = base + MOST * (hits(sizes[-1]) - base)
    return Ladder(sizes, next(size for size in sizes if hits(size) >= wanted))


def device_is_enough(curve: Curve, input_tokens: int, device_pages: int) -> bool:
    """Whether no size of host memory adds more than a little."""
    return curve.unbounded - curve.hit_tokens(device_pages) < LITTLE * input_tokens


def _between(low: int, high: int) -> tuple[int, ...]:
    """Powers of two from at least `low` to at least `high`, evenly chosen: one or more."""
    scales = (10**6, 10**9, 10**12, 10**15)
    known = [scale << power for scale in scales for power in range(10)]
    last = len(known) - 1
    top = next((place for place, size in enumerate(known) if size >= high), last)
    first = next((place for place, size in enumerate(known) if size >= low), last)
    places = range(first, max(first, top) + 1)
    step = max(1.0, (len(places) - 1) / (MOST_SIZES - 1))
    chosen = {places[round(index * step)] for index in range(min(MOST_SIZES, len(places)))}
    return tuple(known[place] for place in sorted(chosen))


def ladder_points(base: ReplayOptions, steps: Ladder) -> list[Named]:
    """No host memory, then the sizes, ascending. base: with the load."""
    base = _without_storage(base)
    return [
        ("no host memory", _at(base)),
        *((_host(size, base), _at(base, host_bytes=size)) for size in steps.sizes),
    ]


def other_points(base: ReplayOptions, steps: Ladder) -> list[Named]:
    """What else there is to change. base: with the load; what reads storage is for the points with
    storage alone."""
    stored: dict[str, Any] = {name: getattr(base, name) for name in _STORAGE}
    base = _without_storage(base)
    found: list[Named] = []
    fixed = steps.knee
    if fixed:
        at = _host(fixed, base)
        used = base.write_policy or WRITE_POLICY
        for policy in registry.spellings(registry.WRITE_POLICIES):
            if policy != used:
                point = _at(base, host_bytes=fixed, write_policy=policy)
                found.append((f"{at}, {policy}", point))
        link = _at(base, host_bytes=fixed, host_bandwidth=_twice(base.host_bandwidth))
        found.append((f"{at}, host link 2x", link))
    each = " each" if copies_of(base) > 1 else ""
    twice = f"no host memory, {gpus_of(2 * base.tp * base.pp)}{each} (tp {2 * base.tp})"
    found.append((twice, _at(base, tp=2 * base.tp)))
    if stored["storage"] is not None:
        for size in [one for one in steps.sizes if one <= fixed][-3:]:
            point = _at(replace(base, **stored), host_bytes=size, storage=stored["storage"])
            found.append((f"{_host(size, base)}, storage", point))
    return found


def machines(base: ReplayOptions, steps: Ladder | None) -> list[Named]:
    """The machines whose largest load is searched: without host memory and with the knee; for a
    trace of lengths only (no ladder) the GPUs that were given, and twice as many."""
    base = _without_storage(base)
    if steps is None:
        return [(gpus_of(tp * base.pp), _at(base, tp=tp)) for tp in (base.tp, 2 * base.tp)]
    found = [("no host memory", _at(base))]
    if steps.knee:
        found.append((_host(steps.knee, base), _at(base, host_bytes=steps.knee)))
    return found


def loaded(named: Named, speed: Fraction) -> Named:
    """The point at another speed, which its label names."""
    label, point = named
    return f"{label}, {float(speed):g}x speed", _with(point, speed=speed)


def at_speed(point: Point, speed: Fraction) -> Point:
    """The point at another speed; as it is where its load is a rate or a concurrency."""
    changed = {} if "speed" not in _load_of(point.options, speed) else {"speed": speed}
    return _with(point, **changed)


def drawn(named: Named, seed: int) -> Named:
    """The point with another draw of what is random."""
    label, point = named
    return f"{label}, draw {seed}", _with(point, seed=seed)


def more_load(named: Named, factor: Fraction) -> Named:
    """The point with so many times its load: more sessions, where the trace says when they begin;
    else more requests a second or at once, as the user gave them."""
    label, point = named
    if factor == 1:
        return named
    options = point.options
    if options.request_rate is None and options.concurrency is None:
        changed: dict[str, Any] = {"scale_sessions": (options.scale_sessions or 1) * factor}
    else:
        changed = _load_of(options, Fraction(1), factor)
    return f"{label}, {float(factor):g} x the load", _with(point, **changed)


def sharing(named: Named, how: str) -> Named:
    """The point of a log whose prompts share nothing (`none`), or all that they could (`most`)."""
    label, point = named
    point = Point(replace(point.options, growth=None), point.varied)
    return f"{label}, --sharing {how}", _with(point, sharing=how)


def first_of(named: Named, requests: int) -> Named:
    """The point with the first requests of the whole trace alone."""
    label, point = named
    point = of_part(point, None)
    return f"{label}, {requests:,} requests", _with(point, limit=requests)


def of_part(point: Point, rate: Fraction | None) -> Point:
    """The point with this part of the trace; None for all of it."""
    return Point(replace(point.options, sample=rate), point.varied)


def slower_passes(named: Named, factor: Fraction) -> Named:
    """The point as it is if every pass, copy and step of the host takes `factor` times as long.

    That is the load times the factor, with all times of the replay the factor longer. So it is a
    replay at that load whose limits are the factor shorter, and whose times are to be multiplied.
    """
    label, point = named
    options = point.options
    changed = _load_of(options, options.speed or Fraction(1), factor)
    if options.slo is not None:
        limits = {f"{name}_ns": int(limit / factor) for name, limit in options.slo.limits}
        changed["slo"] = Slo(**limits)
    return f"{label}, passes {float(factor):g}x as long", _with(point, **changed)


def _twice(link: Bandwidth | None) -> Bandwidth:
    if link is not None and link.bytes_per_s:
        return replace(link, bytes_per_s=2 * link.bytes_per_s)
    return Bandwidth(2 * (Fraction(1) if link is None else link.factor))


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
    nothing: dict[str, Any] = dict.fromkeys((*OF_HOST, *_STORAGE))
    return replace(_without_host(options), **{**nothing, "exclusive": False})


def resolved(point: ReplayOptions, base: ReplayOptions, trace: Trace) -> tuple[Settings, Paged]:
    """The settings of a point without host memory, whose pages are as large on host as the base
    would keep them there. Raises CallerError where they do not fit."""
    settings, paged = resolve(point, trace)
    ranks = replace(settings.parallelism, shared_host=base.parallelism.shared_host)
    return replace(settings, parallelism=ranks), paged


def _without_host(options: ReplayOptions) -> ReplayOptions:
    return replace(options, host_ratio=Fraction(0), host_bytes=None, host_pages=None)


def _without_storage(options: ReplayOptions) -> ReplayOptions:
    nothing: dict[str, Any] = dict.fromkeys(_STORAGE)
    return replace(options, **nothing)


def _with(point: Point, **changed: Any) -> Point:
    varied = point.varied | {name: Value(_text(value), value) for name, value in changed.items()}
    return Point(replace(point.options, **changed), varied)


def _at(base: ReplayOptions, **varied: Any) -> Point:
    """A point that differs from the base. Its host memory is always named."""
    varied = {"host_bytes": 0} | varied
    texts = {name: Value(_text(value), value) for name, value in varied.items()}
    given: dict[str, Any] = {"host_ratio": None}
    if not varied["host_bytes"]:
        given = {**dict.fromkeys(OF_HOST), "exclusive": False}
        varied = varied | {"host_bytes": None}
    return Point(replace(base, **given | varied), texts)


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else str(value)


def _size(size: int) -> str:
    unit, scale = ("TB", 10**12) if size >= 10**12 else ("GB", 10**9)
    return f"{size / scale:g} {unit}" if size >= 10**9 else f"{size / 10**6:g} MB"


def _host(size: int, base: ReplayOptions) -> str:
    """Host memory of a replica, and of all of them where there are several."""
    copies = copies_of(base)
    return f"{_size(size)} host" + (f" each, {_size(size * copies)} in all" if copies > 1 else "")


def copies_of(base: ReplayOptions) -> int:
    """Replicas, each with host memory and GPUs of its own."""
    return base.replicas or (base.prefill_replicas or 0) + (base.decode_replicas or 0) or 1


def gpus_of(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"
