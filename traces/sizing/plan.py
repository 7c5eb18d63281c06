"""The sizes of host memory that are offered, from the curve of the trace, and points that differ
from others in their load, their passes or what is random. Does not run points; see replays.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Any

from ..curves.distances import Curve
from ..formats.base import Paged, Trace
from ..replaying.config import ReplayConfig as Settings
from ..replaying.config import resolve
from ..replaying.load import Slo
from ..replaying.options import Need, ReplayOptions, that_need
from ..sweeping.grid import Point, Value

MOST_SIZES = 4
NEARLY_ALL = Fraction(19, 20)  # of the hits of an unbounded cache
LITTLE = 0.01  # of all prompt tokens: a size that adds less is not tried
Named = tuple[str, Point]
_STORAGE = ("storage", *that_need(Need.STORE))
OF_HOST = tuple(name for name in that_need(Need.HOST) if name != "storage")


def ladder(
    curve: Curve,
    input_tokens: int,
    page_bytes: int,
    device_pages: int,
    exclusive: bool = False,
) -> tuple[int, ...]:
    """Sizes of host memory in powers of two, ascending, from what adds hits to what brings nearly
    all; none where the device alone does. page_bytes: of all ranks. exclusive: whether host memory
    adds to the device; otherwise less of it than the device has holds nothing more."""
    if device_is_enough(curve, input_tokens, device_pages):
        return ()
    top = max(1, curve.pages_for(NEARLY_ALL * curve.unbounded))
    low = curve.pages_for(curve.hit_tokens(device_pages) + LITTLE * input_tokens)
    if exclusive:
        low, top = max(0, low - device_pages), max(1, top - device_pages)
    low = max(1 if exclusive else device_pages, min(low or top, top))
    return _between(low * page_bytes, top * page_bytes)


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
    point = Point(replace(point.options, sample=None), point.varied)
    return f"{label}, {requests:,} requests", _with(point, limit=requests)


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
    nothing |= {"host_ratio": Fraction(0), "host_bytes": None, "host_pages": None}
    return replace(options, **{**nothing, "exclusive": False})


def resolved(point: ReplayOptions, base: ReplayOptions, trace: Trace) -> tuple[Settings, Paged]:
    """The settings of a point without host memory, whose pages are as large on host as the base
    would keep them there. Raises CallerError where they do not fit."""
    settings, paged = resolve(point, trace)
    ranks = replace(settings.parallelism, shared_host=base.parallelism.shared_host)
    return replace(settings, parallelism=ranks), paged


def _with(point: Point, **changed: Any) -> Point:
    varied = point.varied | {name: Value(_text(value), value) for name, value in changed.items()}
    return Point(replace(point.options, **changed), varied)


def _text(value: Any) -> str:
    return f"{float(value):g}" if isinstance(value, Fraction) else str(value)
