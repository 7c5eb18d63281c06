"""The sentences of a verdict. Each states figures of the points; none is computed here but
differences and ratios that are printed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import floor, log10

from .buys import HOST, Step, amount_for, goodput_of, line
from .limits import OF_MEMORY, Limit, gigabytes, percent
from .measured import Measured
from .prices import Prices

LITTLE_RATE = 0.01  # of all prompt tokens
LITTLE_TIME = 0.05  # of the time before
_MOST_OF_IT = 0.9


def headline(points: Sequence[Measured], best: Measured, binding: Sequence[Limit]) -> str:
    """What the host memory of the best point buys, what more of it would, and the limit."""
    ordered = line(points, best, HOST)
    first = ordered[0]
    of_memory = [one.short for one in binding if one.resource in OF_MEMORY]
    limit = f"; limit: {of_memory[0]}" if of_memory else ""
    if not any(point.ceiling_tokens for point in points):
        return (
            f"{best.label or 'This point'}: {_state(best)}. No prompt begins like an earlier one."
        )
    if best is first:
        what = "the least host memory that was tried" if best.host_gb else "no host memory"
        return f"{_capital(what)} is enough: {_state(best)}{_beyond(ordered, best)}{limit}."
    host = gigabytes(best.host_gb)
    return f"{host} of host memory: {_change(points, first, best)}{_beyond(ordered, best)}{limit}."


def _state(point: Measured) -> str:
    told = f"hit rate {percent(point.hit_rate)}"
    if point.times is not None:
        told += f", p90 TTFT {_time(point.times.ttft_p90)}"
    return told + (f", goodput {point.goodput:.3g} requests/s" if point.goodput is not None else "")


def _change(points: Sequence[Measured], first: Measured, best: Measured) -> str:
    told = [f"hit rate {first.hit_rate * 100:.0f} -> {best.hit_rate * 100:.0f} %"]
    if first.times is not None and best.times is not None:
        before, after = first.times.ttft_p90, best.times.ttft_p90
        told.append(f"p90 TTFT {_time(before, unit=False)} -> {_time(after)}")
    goodputs = goodput_of(points, first, best)
    if goodputs is not None and goodputs[0] > 0:
        told.append(f"{goodputs[1] / goodputs[0]:.1f} x goodput")
    return ", ".join(told)


def _beyond(ordered: Sequence[Measured], best: Measured) -> str:
    """What the largest size adds to the best one."""
    last = ordered[-1]
    if last.host_gb <= best.host_gb:
        return "; nothing larger was tried" if len(ordered) > 1 else ""
    host = gigabytes(best.host_gb) if best.host_gb else "that"
    rate = last.hit_rate - best.hit_rate
    faster = 0.0
    if last.times is not None and best.times is not None and best.times.ttft_p90:
        faster = 1 - last.times.ttft_p90 / best.times.ttft_p90
    if rate < LITTLE_RATE and faster < LITTLE_TIME:
        return f"; beyond {host} hardly anything, up to {gigabytes(last.host_gb)}"
    more = f"; {gigabytes(last.host_gb)} would add {rate * 100:.1f} points of hit rate"
    if last.times is not None:
        more += f", with p90 TTFT {_time(last.times.ttft_p90)}"
    return more


def nine_tenths(points: Sequence[Measured], best: Measured) -> Iterator[str]:
    """The size with most of the hits that host memory adds, between the points."""
    ordered = line(points, best, HOST)
    least, most = ordered[0].hit_rate, max(point.hit_rate for point in ordered)
    if most - least < LITTLE_RATE:
        return
    wanted = least + _MOST_OF_IT * (most - least)
    found = amount_for(ordered, HOST, wanted, lambda point: point.hit_rate)
    if found is not None:
        amount, low, high = found
        between = (
            f", read off a straight line between {gigabytes(low.host_gb)} and "
            f"{gigabytes(high.host_gb)}"
        )
        yield (
            f"Nine tenths of the hits that host memory adds come with about {gigabytes(amount)}"
            f"{between if low is not high else ''}."
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
    little = abs(rate * step.size) < LITTLE_RATE
    if step.start.times is not None and time is not None:
        little = little and abs(time * step.size) < LITTLE_TIME * step.start.times.ttft_p90
    if goodput is not None:
        little = little and abs(goodput * step.size) < LITTLE_RATE * (step.start.goodput or 0.0)
    if little:
        return f"{sizes}{where}: hardly anything changes."
    units = max(1, 10 ** floor(log10(step.size))) if step.size > 0 else 1
    parts = [f"{rate * 100 * units:+.2g} points of hit rate"]
    if time is not None:
        parts.append(f"{_signed(time * units)} of p90 TTFT")
    if goodput is not None:
        parts.append(f"{goodput * units:+.2g} requests/s of goodput")
    each = f"each {axis.unit} brings" if units == 1 else f"each {units:,} {axis.unit} bring"
    return f"{sizes}{where}: {each} {', '.join(parts)}."


def priced(best: Measured, value: float, prices: Prices, cost: float) -> str:
    known = ", ".join(sorted(prices.per_hour))
    return (
        f"{best.label or 'It'} costs {cost:,.3g} an hour (prices of {known}) and serves "
        f"{value:,.0f} requests within the limits for 1 of it, the most of the points compared."
    )


def unpriced() -> str:
    return "Prices need goodput, which no point has: give the limits of latency with --slo."


def _time(seconds: float, unit: bool = True) -> str:
    text = f"{seconds:.1f}" if seconds >= 1 else f"{seconds:.2g}"
    return f"{text} s" if unit else text


def _signed(seconds: float) -> str:
    if abs(seconds) >= 1:
        return f"{seconds:+.1f} s"
    return f"{seconds * 1000:+.2g} ms" if abs(seconds) < 0.0995 else f"{seconds * 1000:+.0f} ms"


def _count(amount: float) -> str:
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:,.3g}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
