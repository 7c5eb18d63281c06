"""What counts of each point, which points are best, and which no other point beats.

A point is on the front if no other point is at least as good in everything (GPUs, host memory, hit
rate, p90 time to first token, goodput) and better in something. Does not print; see sweep_table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass
from typing import Any

from ..results.reading import record_of
from ..results.record import Result


@dataclass(frozen=True, slots=True)
class Outcome:
    """The figures of a point. None for what it does not have: times in `hits` mode, hits of a
    trace that has lengths alone, goodput without `--slo`. host_bytes: of all pools, ranks and
    replicas. replays: the figures of each replay of a point that was replayed several times."""

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
    replays: Mapping[str, Any] | None = None

    def document(self) -> dict[str, object]:
        return {name: value for name, value in asdict(self).items() if name != "replays"}


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
        gpus=found.config["tp"] * replicas,
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
        replays=point.get("replays"),
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
