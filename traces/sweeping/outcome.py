"""The points of a sweep: what counts of each, which are best, and both as tables.

A point is on the front if no other point is at least as good in everything (GPUs, host memory, hit
rate, p90 time to first token, goodput) and better in something.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from msgspec.structs import astuple
from rich.table import Table

from ..curves import Curve
from ..expected import together
from ..replaying.config import ReplayConfig
from ..replaying.options import FleetOptions, StorageOptions, plain
from ..reporting import digits, gigabytes
from ..results.record import Result, document, record_of
from ..terminal.options import rows as options_of
from ..terminal.tables import console, pairs, table
from .grid import Axis, Grid
from .work import Document

MOST_ROWS = 60
_BAR = 18  # characters of the longest bar, where the figures leave room for it
_TIERS = {"device": "#", "host": "+", "storage": "."}
_FIGURES = {
    "hit_rate": "best hit rate",
    "ttft_p90_s": "best p90 TTFT",
    "goodput_requests_per_s": "best goodput",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a point. None for what it does not have: times in `hits` mode, hits of a
    trace that has lengths alone, goodput without `--slo`. host_bytes: of all pools, ranks and
    replicas. offered: the load, as a part of what the machine can do."""

    label: str
    point: dict[str, object]
    key: str
    digest: str
    gpus: int
    host_bytes: int
    hit_rate: float | None
    ceiling_rate: float | None
    tier_rates: tuple[float, ...]
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    output_tokens_per_s: float | None
    goodput_requests_per_s: float | None
    offered: float | None
    overloaded: bool
    wall_s: float
    expected_error: Mapping[str, Any] | None = None

    def document(self) -> dict[str, object]:
        return asdict(self)


def outcome_of(point: Document) -> Outcome:
    """point: its document, see work."""
    found = record_of(Result, point)
    whole, load = found.whole, found.load
    ttft = found.latency_s.ttft if found.latency_s else None
    hits = whole.hit_tokens if found.trace.identity else None
    replicas = len(found.fleet.replicas) if found.fleet else 1
    return Outcome(
        label=point["label"],
        point=point["point"],
        key=point["key"],
        digest=found.digest,
        gpus=found.config["tp"] * found.config["pp"] * replicas,
        host_bytes=sum(use.pool_bytes_total.host for use in found.components.values()),
        hit_rate=whole.hit_rate if hits else None,
        ceiling_rate=whole.ceiling_rate if hits else None,
        tier_rates=tuple(map(whole.rate, astuple(hits))) if hits else (),
        ttft_p50_s=ttft.p50 if ttft else None,
        ttft_p90_s=ttft.p90 if ttft else None,
        output_tokens_per_s=found.output.tokens_per_s if found.output else None,
        goodput_requests_per_s=found.slo.goodput_requests_per_s if found.slo else None,
        offered=load.offered if load else None,
        overloaded=bool(load and load.overloaded),
        wall_s=found.wall_s,
        expected_error=document(found.expected_error),
    )


def costs(one: Outcome) -> tuple[float, ...]:
    """What a point costs and misses: less is better, in each place."""
    return (
        one.gpus,
        one.host_bytes,
        -(one.hit_rate or 0.0),
        one.ttft_p90_s or 0.0,
        -(one.goodput_requests_per_s or 0.0),
    )


def front(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The points that no other one beats, in their order. Of equal points, all."""
    found = [(one, costs(one)) for one in outcomes]
    return [
        one
        for one, own in found
        if not any(
            other != own and all(theirs <= ours for theirs, ours in zip(other, own, strict=True))
            for _, other in found
        )
    ]


def best(outcomes: Sequence[Outcome]) -> dict[str, Outcome]:
    """The best point by each figure that points have; of equal ones the cheapest."""
    found = {}
    for name in _FIGURES:
        known = [one for one in outcomes if getattr(one, name) is not None]
        sign = -1 if name == "ttft_p90_s" else 1
        if known:
            found[name] = max(
                known, key=lambda one: (sign * getattr(one, name), -one.gpus, -one.host_bytes)
            )
    return found


def ordered(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The best first: by goodput, else by the p90 time to first token, else by hit rate."""
    return sorted(
        outcomes,
        key=lambda one: (
            -(one.goodput_requests_per_s or 0.0),
            one.ttft_p90_s or 0.0,
            -(one.hit_rate or 0.0),
            one.label,
        ),
    )


def of_host_memory(grid: Grid) -> bool:
    """Whether points differ in the host memory of one server alone, without a tier behind it."""
    others = (*options_of(StorageOptions), *options_of(FleetOptions))
    alone = all(getattr(grid.base, one.name) is None for one in others)
    return alone and [axis.name for axis in grid.axes] == ["host_bytes"]


def enough_bytes(curve: Curve, settings: ReplayConfig) -> int | None:
    """The least host memory, to a page and on all ranks, with which LRU hits what it hits with any
    amount; 0 where the device alone is enough. None for several pools, which have other pages."""
    if len(settings.core.components) > 1:
        return None
    pages = curve.pages_for(curve.unbounded)
    if pages <= settings.core.device_pages[0]:
        return 0
    return pages * settings.host_page_bytes[0] * settings.page_ranks


def print_outcomes(
    outcomes: Sequence[Outcome], axes: Sequence[Axis], points: int, stream: TextIO
) -> None:
    """The table: along an axis if there is one, else best first."""
    if not outcomes:
        return
    along = len(axes) == 1
    rows = ordered(outcomes)
    if along:
        [axis] = axes
        places = {repr(plain(one.value)): place for place, one in enumerate(_sorted(axis))}
        rows.sort(key=lambda one: places.get(repr(one.point.get(axis.name)), -1))
    title = f"{len(outcomes)} of {points} points{'' if along else ', best first'}"
    out = console(stream)
    unbounded = out.options.update(max_width=10 * out.width)
    wide = out.measure(_table(title, rows, axes, _BAR), options=unbounded).maximum - out.width
    out.print(_table(title, rows, axes, max(1, _BAR - max(0, wide))))
    if len(rows) > MOST_ROWS:
        print(f"{len(rows) - MOST_ROWS} more points are in the file", file=stream)


def _sorted(axis: Axis) -> Sequence[Any]:
    """The values of an axis: numbers ascending, others as they were typed."""
    try:
        return sorted(axis.values, key=lambda one: one.value)
    except TypeError:
        return axis.values


def _table(title: str, rows: Sequence[Outcome], axes: Sequence[Axis], bar: int) -> Table:
    """bar: characters of the longest one, which ends at the ceiling."""
    along = len(axes) == 1
    kept = {one.key for one in front(rows)}
    timed = any(one.ttft_p90_s is not None for one in rows)
    served = any(one.goodput_requests_per_s is not None for one in rows)
    tiers = max(len(one.tier_rates) for one in rows) if along else 0
    tiers = 2 if tiers and not any(one.tier_rates[2:] > (0,) for one in rows) else tiers
    hits = any(one.hit_rate is not None for one in rows)
    named = [axis.name.replace("_", "-") for axis in axes] or ["point"]
    typed = [{repr(plain(one.value)): one.text for one in axis.values} for axis in axes]
    columns = [*named, "", *(f"{name} %" for name in [*_TIERS][:tiers]), *["hits %"] * hits]
    columns += [*["p50 s", "p90 s"] * timed, *["good/s"] * served]
    result = table(title, *columns, *["# + ."] * hits)
    for column in (*result.columns[: len(named)], *result.columns[-1:] * hits):
        column.justify = "left"
    ceiling = max((one.ceiling_rate or 0.0 for one in rows), default=0.0) or 1.0
    for one in rows[:MOST_ROWS]:
        read = [repr(one.point[axis.name]) if axis.name in one.point else "" for axis in axes]
        cells = [texts.get(own, own) for texts, own in zip(typed, read, strict=True)]
        cells = cells or [one.label]
        cells.append("*" * (one.key in kept) + "!" * one.overloaded)
        cells += [_rate(rate) for rate in (*one.tier_rates[:tiers], *[one.hit_rate] * hits)]
        if timed:
            cells += [_number(one.ttft_p50_s), _number(one.ttft_p90_s)]
        cells += [_number(one.goodput_requests_per_s)] * served
        result.add_row(*cells, *[_bar(one, ceiling, bar)] * hits)
    if hits:
        result.add_section()
        result.add_row(
            *["ceiling", *[""] * (len(named) + tiers), _rate(ceiling)],
            *[""] * (2 * timed + served),
            "-" * bar,
        )
    return result


def print_best(
    points: Sequence[Document], outcomes: Sequence[Outcome], enough: int | None, stream: TextIO
) -> None:
    """What was replayed, and the best points. points: their documents. enough: see enough_bytes."""
    first = record_of(Result, points[0])
    trace, configs = first.trace, [point["config"] for point in points]
    models, loads = ({name(one) for one in configs} for name in (model_of, load_of))
    found = [
        ("trace", f"{os.path.basename(trace.path)}, {trace.requests:,} requests"),
        ("model", "see the points" if len(models) > 1 else models.pop()),
        ("load", "see the points" if len(loads) > 1 else loads.pop()),
    ]
    for name, one in best(outcomes).items():
        value = getattr(one, name)
        shown = f"{_rate(value)} %" if name == "hit_rate" else f"{_number(value)}{_UNITS[name]}"
        found.append((_FIGURES[name], f"{shown}, {one.label}"))
    if enough is not None:
        most = _rate(first.whole.ceiling_rate)
        size = gigabytes(enough) if enough else "none: the device has all"
        found.append(("enough host memory", f"{size} (LRU, one by one: {most} % hit)"))
    if any(one.overloaded for one in outcomes):
        found.append(("!", "overloaded: more arrives than the machine can do"))
    found.append(("*", "no other is better in everything: GPUs, memory, hits, p90, goodput"))
    if first.trace.identity:
        found.append(("# + .", "hits of device, host and storage, up to the ceiling"))
    lines = together(one.expected_error for one in outcomes)
    found += [("expected error", line.partition(": ")[2]) for line in lines]
    console(stream).print(pairs("", found))


def model_of(config: Mapping[str, Any]) -> str:
    return f"{config['model']} on {config['tp'] * config['pp']} x {config['hardware']}"


def load_of(config: Mapping[str, Any]) -> str:
    """The load that was played, from the config of a result."""
    if config["mode"] == "hits":
        return "one request at a time"
    told = [
        text.format(config[name])
        for name, text in _LOADS.items()
        if config.get(name) not in (None, 1)
    ]
    return ", ".join(told) or "the arrivals of the trace"


_LOADS = {
    "speed": "arrivals {:g} x as fast",
    "scale_sessions": "{:g} x the sessions of the trace",
    "request_rate": "{:g} requests/s",
    "concurrency": "{} requests at once",
}
_UNITS = {"ttft_p90_s": " s", "goodput_requests_per_s": " requests/s"}


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate * 100:.1f}"


def _number(value: float | None) -> str:
    """With two decimals, fewer of large ones."""
    if value is None:
        return ""
    return f"{value:,.2f}" if 1 <= value < 1000 else digits(value, 2 if value < 1 else 3)


def _bar(one: Outcome, ceiling: float, bar: int) -> str:
    drawn, total, end = "", 0.0, 0
    for mark, rate in zip(_TIERS.values(), one.tier_rates, strict=False):
        total += rate
        begin, end = end, round(total / ceiling * bar)
        drawn += mark * (end - begin)
    return drawn
