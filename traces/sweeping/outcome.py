"""The points of a sweep: what counts of each, which are best, as a table with bars and in words.

A point is on the front if no other point is at least as good in everything (GPUs, host memory, hit
rate, p90 time to first token, goodput) and better in something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any, TextIO

from ..expected.words import together
from ..replaying.options import plain
from ..reporting.amounts import digits, gigabytes
from ..results.reading import record_of
from ..results.record import Result
from ..terminal.streams import print_error
from ..terminal.tables import console, percent, table
from .grid import Axis


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a point. None for what it does not have: times in `hits` mode, hits of a
    trace that has lengths alone, goodput without `--slo`. host_bytes: of all pools, ranks and
    replicas."""

    label: str
    point: dict[str, object]
    key: str
    digest: str
    gpus: int
    host_bytes: int
    hit_rate: float | None
    tier_rates: tuple[float, ...]
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    output_tokens_per_s: float | None
    goodput_requests_per_s: float | None
    overloaded: bool
    wall_s: float
    expected_error: Mapping[str, Any] | None = None

    def document(self) -> dict[str, object]:
        return asdict(self)


def outcome_of(point: Mapping[str, Any]) -> Outcome:
    """point: its document, see work."""
    found = record_of(Result, point)
    whole, latency, load = found.whole, found.latency_s, found.load
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
        tier_rates=tuple(map(whole.rate, astuple(hits))) if hits else (),
        ttft_p50_s=latency.ttft.p50 if latency else None,
        ttft_p90_s=latency.ttft.p90 if latency else None,
        output_tokens_per_s=found.output.tokens_per_s if found.output else None,
        goodput_requests_per_s=found.slo.goodput_requests_per_s if found.slo else None,
        overloaded=bool(load and load.overloaded),
        wall_s=found.wall_s,
        expected_error=found.expected_error,
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
    figures: dict[str, list[tuple[float, Outcome]]] = {}
    for one in outcomes:
        for name, figure in (
            ("hit_rate", one.hit_rate),
            ("ttft_p90_s", None if one.ttft_p90_s is None else -one.ttft_p90_s),
            ("goodput_requests_per_s", one.goodput_requests_per_s),
        ):
            if figure is not None:
                figures.setdefault(name, []).append((figure, one))
    return {
        name: max(found, key=lambda pair: (pair[0], -pair[1].gpus, -pair[1].host_bytes))[1]
        for name, found in figures.items()
    }


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


MOST_ROWS = 60
_BAR = 18  # characters of the longest bar
_TIERS = "#+."  # device, host, storage
_FIGURES = {
    "hit_rate": "hit rate",
    "ttft_p90_s": "p90 time to first token",
    "goodput_requests_per_s": "goodput",
}


def print_outcomes(
    title: str,
    outcomes: Sequence[Outcome],
    stream: TextIO,
    axes: Sequence[Axis] = (),
) -> None:
    """The table, best first; * marks the front. axes: options with a column each; without any, a
    point has its label."""
    if not outcomes:
        return
    rows = ordered(outcomes)
    kept = {one.key for one in front(outcomes)}
    timed = any(one.ttft_p90_s is not None for one in outcomes)
    served = any(one.goodput_requests_per_s is not None for one in outcomes)
    hits = any(one.hit_rate is not None for one in outcomes)
    named = [axis.name.replace("_", "-") for axis in axes] or ["point"]
    typed = [{repr(plain(one.value)): one.text for one in axis.values} for axis in axes]
    columns = [*named, "", *["hits"] * hits, *["p50 s", "p90 s"] * timed]
    bars = ["# device + host . storage"] * hits
    result = table(title, *columns, *["goodput/s"] * served, *bars)
    for column in result.columns[: len(named)]:
        column.justify = "left"
    if hits:
        result.columns[-1].justify = "left"
    most = max((one.hit_rate or 0.0 for one in outcomes), default=0.0) or 1.0
    for one in rows[:MOST_ROWS]:
        read = [repr(one.point[axis.name]) if axis.name in one.point else "" for axis in axes]
        cells = [texts.get(own, own) for texts, own in zip(typed, read, strict=True)]
        cells = cells or [one.label]
        cells.append("*" if one.key in kept else "")
        cells += [_rate(one.hit_rate)] * hits
        if timed:
            cells += [_seconds(one.ttft_p50_s), _seconds(one.ttft_p90_s)]
        cells += [_number(one.goodput_requests_per_s)] * served
        result.add_row(*cells, *[_bar(one, most)] * hits)
    console(stream).print(result)
    if len(rows) > MOST_ROWS:
        print(f"{len(rows) - MOST_ROWS} more points are in the file", file=stream)


def conclusions(outcomes: Sequence[Outcome]) -> list[str]:
    """The best points and the front, in sentences."""
    if not outcomes:
        return ["No point was replayed to its end."]
    told = []
    for name, one in best(outcomes).items():
        told.append(f"Best {_FIGURES[name]}: {_told(name, one)} with {one.label}.")
    kept = front(outcomes)
    if len(kept) < len(outcomes):
        told.append(
            f"{len(kept)} of {len(outcomes)} points (*) are on the front: no other point is at "
            "least as good in GPUs, host memory and every figure, and better in one."
        )
    busy = sum(one.overloaded for one in outcomes)
    if busy:
        told.append(
            f"At {busy} of {len(outcomes)} points the trace offers more than the machine can do: "
            "their times to first token are mostly queueing, and a lower --speed shows the cache."
        )
    return [*told, *together(one.expected_error for one in outcomes)]


def _told(name: str, one: Outcome) -> str:
    memory = f", {gigabytes(one.host_bytes)} of host memory" if one.host_bytes else ""
    if name == "hit_rate":
        return f"{percent(one.hit_rate or 0.0, 1)}{memory}"
    if name == "ttft_p90_s":
        return f"{one.ttft_p90_s:,.2f} s{memory}"
    return f"{_number(one.goodput_requests_per_s)} requests per second{memory}"


def tell_lines(lines: Sequence[str]) -> None:
    """Every line of an error but the last one, which the command raises."""
    for line in lines[:-1]:
        print_error(line)


def best_document(outcomes: Sequence[Outcome]) -> Mapping[str, str]:
    """The labels of the best points."""
    return {name: one.label for name, one in best(outcomes).items()}


def _rate(rate: float | None) -> str:
    return "" if rate is None else percent(rate, 1)


def _seconds(time_s: float | None) -> str:
    if time_s is None:
        return ""
    return f"{time_s:,.2f}" if time_s < 1000 else f"{time_s:,.0f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.2f}" if value >= 1 else digits(value, 2)


def _bar(one: Outcome, most: float) -> str:
    ends = [0]
    total = 0.0
    for rate in one.tier_rates:
        total += rate
        ends.append(round(total / most * _BAR))
    drawn = zip(_TIERS, ends, ends[1:], strict=False)
    return "".join(mark * (end - begin) for mark, begin, end in drawn)
