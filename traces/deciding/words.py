"""The sentences of a verdict. Each states figures of the points; none is computed here but
differences and ratios that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor, log10
from typing import Any

from .buys import HOST, Step, goodput_of, line
from .limits import OF_MEMORY, Limit, digits, gigabytes, percent
from .measured import SAME, Measured, differ, span
from .prices import Prices
from .serving import SERVED

UNMET = "Nothing that was tried meets the limits"
LITTLE_RATE = 0.01  # of all prompt tokens
LITTLE_TIME = 0.05  # of the time before
_TIMES = {"p50": "ttft_p50_s", "p90": "ttft_p90_s"}


def headline(points: Sequence[Measured], best: Measured, binding: Sequence[Limit]) -> str:
    """What the host memory of the best point buys, what more of it would, and the limit."""
    ordered = line(points, best, HOST)
    first = ordered[0]
    of_memory = [one.short for one in binding if one.resource in OF_MEMORY]
    limit = f"; limit: {of_memory[0]}" if of_memory else ""
    load = _load(best)
    if not any(point.ceiling_tokens for point in points):
        return (
            f"{best.label or 'This point'}{load}: {_state(best)}. No prompt begins like an earlier "
            "one."
        )
    gpus = f" with {best.gpus} GPUs" if best.gpus != points[0].gpus else ""
    if best is first:
        told = f"{gpus}{load}: {'' if best.host_gb else 'without it '}{_state(best)}"
        what = "The least host memory that was tried is enough"
        what = what if best.host_gb else "Host memory brings little"
        return f"{what}{told}{_beyond(ordered, best)}{limit}."
    host = gigabytes(best.host_gb)
    change = _change(points, first, best)
    return f"{host} of host memory{gpus}{load}: {change}{_beyond(ordered, best)}{limit}."


def _load(point: Measured) -> str:
    """At which load a point was replayed, where that is not the trace's own."""
    rate, requests = (point.config.get(name) for name in ("request_rate", "concurrency"))
    if rate:
        return f" at {rate:g} requests/s"
    if requests:
        return f" with {requests} requests at once"
    speed, scale = (point.config.get(name) or 1 for name in ("speed", "scale_sessions"))
    of = f" with {scale:g} x its sessions" if scale != 1 else ""
    return f" at {speed:g} x the speed of the trace{of}" if of or speed != 1 else ""


def _state(point: Measured) -> str:
    told = [f"hit rate {percent(point.hit_rate)}"]
    for name, figure in _TIMES.items():
        if values := point.values(figure):
            told.append(f"{name} TTFT {span(values, _seconds)} s")
    if values := point.values("goodput_requests_per_s"):
        told.append(f"goodput {span(values, digits)} requests/s")
    return ", ".join(told)


def _change(points: Sequence[Measured], first: Measured, best: Measured) -> str:
    told = [f"hit rate {first.hit_rate * 100:.0f} -> {best.hit_rate * 100:.0f} %"]
    for name, figure in _TIMES.items():
        before, after = first.values(figure), best.values(figure)
        if before and after:
            same = "" if differ(before, after) else f", {SAME}"
            times = f"{span(before, _seconds)} -> {span(after, _seconds)} s"
            told.append(f"{name} TTFT {times}{same}")
    goodputs = goodput_of(points, first, best)
    if goodputs is not None and goodputs[0] > 0:
        told.append(_more_goodput(first, best, goodputs))
    return ", ".join(told)


def _more_goodput(first: Measured, best: Measured, most: tuple[float, float]) -> str:
    before, after = (one.values("goodput_requests_per_s") for one in (first, best))
    if len(before) < 2 or len(before) != len(after) or not min(before):
        return f"{most[1] / most[0]:.1f} x goodput"
    if not differ(before, after):
        return f"goodput: {SAME}"
    ratios = [late / early for early, late in zip(before, after, strict=True)]
    return f"{span(ratios, lambda one: f'{one:.2f}')} x goodput"


def _beyond(ordered: Sequence[Measured], best: Measured) -> str:
    """What the largest size adds to the best one."""
    last = ordered[-1]
    if last.host_gb <= best.host_gb:
        return "; nothing larger was tried" if len(ordered) > 1 else ""
    host = gigabytes(best.host_gb) if best.host_gb else "that"
    rate = last.hit_rate - best.hit_rate
    faster = 0.0
    apart = differ(best.values("ttft_p90_s"), last.values("ttft_p90_s"))
    if last.times is not None and best.times is not None and best.times.ttft_p90 and apart:
        faster = 1 - last.times.ttft_p90 / best.times.ttft_p90
    if rate < LITTLE_RATE and faster < LITTLE_TIME:
        return f"; beyond {host} hardly anything, up to {gigabytes(last.host_gb)}"
    more = f"; {gigabytes(last.host_gb)} would add {rate * 100:.1f} points of hit rate"
    if values := last.values("ttft_p90_s"):
        more += f", with p90 TTFT {span(values, _seconds)} s{'' if apart else f', {SAME}'}"
    return more


def nine_tenths(curve: Mapping[str, Any] | None) -> Iterator[str]:
    """The size with most of the hits that host memory can add, on the exact curve."""
    tiers = (curve or {}).get("tiers") or {}
    pages = tiers.get("nine_tenths_host_pages")
    if curve is not None and pages and curve.get("bytes_per_token"):
        size = gigabytes(pages * curve["page_size"] * curve["bytes_per_token"] / 1e9)
        yield f"Nine tenths of the hits that host memory can add come with {size} (exact curve)."


def unserved(points: Sequence[Measured], slo: Sequence[str], idle: float | None) -> Iterator[str]:
    """That no point serves its load, where limits were given."""
    known = [point for point in points if point.attained is not None]
    if not known or not slo:
        return
    most = max(known, key=lambda point: point.attained or 0.0)
    if (most.attained or 0.0) < SERVED * (1.0 if idle is None else idle):
        yield (
            f"{UNMET}{_load(most)}: at most "
            f"{percent(most.attained or 0.0, 1)} of the requests keep {' and '.join(slo)} "
            f"({most.label})."
        )


def kept(best: Measured, points: Sequence[Measured], slo: Sequence[str]) -> Iterator[str]:
    """How many requests keep the limits. slo: the limits in words."""
    first = line(points, best, HOST)[0]
    if best.attained is None or not slo:
        return
    told = f"{percent(best.attained, 1)} of the requests keep {' and '.join(slo)}"
    if first is not best and first.attained is not None:
        told += f" with {gigabytes(best.host_gb)} of host memory, {percent(first.attained, 1)} "
        told += f"with {gigabytes(first.host_gb)}" if first.host_gb else "without"
    yield told + "."


def binds(binding: Sequence[Limit]) -> Iterator[str]:
    """The strongest limit of the hits, and that of the time to first token."""
    hits = [one for one in binding if one.resource in OF_MEMORY]
    times = [one for one in binding if one.resource not in OF_MEMORY]
    for what, found in (("hits", hits), ("the time to first token", times)):
        if found:
            yield f"What limits {what}: {found[0].sentence}"


def bought(step: Step) -> str:
    """What one more unit brings between two points."""
    axis = step.axis
    start, end = axis.amount(step.start) or 0.0, axis.amount(step.end) or 0.0
    sizes = f"From {_count(start)} to {_count(end)} {axis.name}"
    where = f" ({step.start.label} -> {step.end.label})" if step.start.label else ""
    rate, time, goodput = step.hit_rate, step.ttft_p90_s, step.goodput_requests_per_s
    if time is not None and not _apart(step, "ttft_p90_s"):
        time = None
    if goodput is not None and not _apart(step, "goodput_requests_per_s"):
        goodput = None
    little = abs(rate * step.size) < LITTLE_RATE
    if step.start.times is not None and time is not None:
        little = little and abs(time * step.size) < LITTLE_TIME * step.start.times.ttft_p90
    if goodput is not None:
        little = little and abs(goodput * step.size) < LITTLE_RATE * (step.start.goodput or 0.0)
    if little:
        return f"{sizes}{where}: hardly anything changes."
    units = max(1, 10 ** floor(log10(step.size))) if step.size > 0 else 1
    parts = [f"{digits(rate * 100 * units, 2, '+')} points of hit rate"]
    if time is not None:
        parts.append(f"{_signed(time * units)} of p90 TTFT")
    if goodput is not None:
        parts.append(f"{digits(goodput * units, 2, '+')} requests/s of goodput")
    if time is None and step.ttft_p90_s is not None:
        parts.append(f"{SAME} in p90 TTFT")
    each = f"each {axis.unit} brings" if units == 1 else f"each {units:,} {axis.unit} bring"
    return f"{sizes}{where}: {each} {', '.join(parts)}."


def _apart(step: Step, figure: str) -> bool:
    return differ(step.start.values(figure), step.end.values(figure))


def other_gpus(best: Measured, points: Sequence[Measured]) -> Iterator[str]:
    """What other GPUs would keep, where the best point keeps too little and has no price."""
    enough = [point for point in points if (point.attained or 0.0) >= SERVED]
    if best.attained is not None and best.attained < SERVED and enough:
        least = min(enough, key=lambda point: (point.gpus, point.host_gb))
        if least.gpus != best.gpus:
            yield (
                f"{percent(least.attained or 0.0, 1)} keep them with {least.label}: without "
                "--price, sizes of host memory are compared with each other, and not with GPUs."
            )


def priced(best: Measured, value: float, prices: Prices, cost: float) -> str:
    known = ", ".join(sorted(prices.per_hour))
    rivals = "the points compared"
    if (best.attained or 0.0) >= SERVED:
        rivals = f"the points where {percent(SERVED)} of the requests keep them"
    return (
        f"{best.label or 'It'} costs {digits(cost)} an hour (prices of {known}) and serves "
        f"{value:,.0f} requests within the limits for 1 of it, the most of {rivals}."
    )


def unpriced() -> str:
    return "Prices need goodput, which no point has: give the limits of latency with --slo."


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f}" if seconds >= 10 else f"{seconds:.2f}"


def _signed(seconds: float) -> str:
    if abs(seconds) >= 1:
        return f"{seconds:+.1f} s"
    return f"{digits(seconds * 1000, 2, '+')} ms"


def _count(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else digits(amount)
