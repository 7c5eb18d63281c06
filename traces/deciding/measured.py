"""One point of a sweep as the figures that a verdict needs, read from its JSON document, and what
chance does to them.

Amounts are totals: gigabytes of host memory of all GPUs of a replica's server times the replicas,
and so on. A figure that the document does not have is None and is left out of the verdict.

A point is replayed with several draws of what is random. Its figure is the median, its range from
the least to the most. Two points differ in a figure if their ranges do not meet. Where only one of
them was replayed several times, the other's range is taken to be as wide.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import sim.hardware.profile as hardware

from ..results.reading import record_of
from ..results.record import Goodput, Result
from ..results.record import Times as LatencyFigures

SAME = "no difference that these replays can show"


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def differ(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether two points differ in a figure. Of two that were replayed once, nothing is known of
    chance, and any difference counts."""
    if not one or not other:
        return False
    wide = max(max(one) - min(one), max(other) - min(other))
    low, high = _range(one, wide), _range(other, wide)
    return low[1] < high[0] or high[1] < low[0]


def span(values: Sequence[float], told: Callable[[float], str]) -> str:
    """The median, and the range where there is one."""
    if len(values) < 2:
        return told(values[0])
    return f"{told(median(values))} ({told(min(values))} to {told(max(values))})"


def _range(values: Sequence[float], wide: float) -> tuple[float, float]:
    if len(values) == 1 and wide:
        return values[0] - wide / 2, values[0] + wide / 2
    return min(values), max(values)


Document = Mapping[str, Any]

# settings that say nothing where there is no host memory
OF_HOST = frozenset(
    {
        *("write_policy", "exclusive", "exchange_pages", "load_threshold", "load_quota"),
        *("load_groups", "host_bandwidth", "host_copies"),
    }
)


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds. queue, load and compute are the parts of the mean time to first token. ttft_p50:
    None if it is not known."""

    ttft_mean: float
    ttft_p50: float | None
    ttft_p90: float
    queue: float
    load: float
    compute: float

    @property
    def parts(self) -> float:
        return self.queue + self.load + self.compute


@dataclass(frozen=True, slots=True)
class Measured:
    """See the module. cache_tokens: what both tiers hold together, each token counted once; None
    with storage, which has no size here. link_gb_per_s: one direction of the host links of all
    ranks. busy: shares of the makespan, by name of the link. tokens_per_s: of output. replays: the
    figures of each replay, where there were several; the other figures are then of one of them, or
    medians."""

    label: str
    config: Mapping[str, Any]
    host_gb: float
    gpus: int
    link_gb_per_s: float | None
    storage_gb_per_s: float | None
    cache_tokens: int | None
    input_tokens: int
    hit_tokens: int
    ceiling_tokens: int
    times: Times | None
    busy: Mapping[str, float]
    offered: float | None
    goodput: float | None
    attained: float | None
    tokens_per_s: float | None
    replays: Mapping[str, Sequence[float] | None] = field(default_factory=dict)

    def values(self, name: str) -> Sequence[float]:
        """A figure of each replay of the point, by the names of sizing/replays; empty if it has
        none."""
        found = self.replays.get(name)
        if found is not None:
            return found
        times = self.times
        known = {
            "ttft_p50_s": None if times is None else times.ttft_p50,
            "ttft_p90_s": None if times is None else times.ttft_p90,
            "goodput_requests_per_s": self.goodput,
            "attained_rate": self.attained,
        }
        own = known[name]
        return () if own is None else (own,)

    @property
    def hit_rate(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def ceiling_rate(self) -> float:
        return self.ceiling_tokens / self.input_tokens if self.input_tokens else 0.0

    @property
    def computed_tokens(self) -> int:
        return self.input_tokens - self.hit_tokens

    @property
    def speed(self) -> Any:
        """How fast arrivals are, whatever the load model is, and of how many sessions."""
        names = ("speed", "arrivals", "request_rate", "concurrency", "think_time", "scale_sessions")
        return tuple(str(self.config.get(name)) for name in names)


def measured(document: Document) -> Measured:
    """The figures of a point, or of any replay's document."""
    found, config = record_of(Result, document), document["config"]
    replicas, latency, replays = _replicas(config), found.latency_s, document.get("replays") or {}
    pools = [use.pool_bytes_total for use in (found.components or {}).values()]
    hosts: list[int] = [pool.host for pool in pools if pool]
    return Measured(
        label=document.get("label") or "",
        config=config,
        host_gb=sum(hosts) / 1e9,
        gpus=(gpus := config.get("tp", 1) * config.get("pp", 1) * replicas),
        link_gb_per_s=_link(config, gpus),
        storage_gb_per_s=_gb(config.get("storage_bandwidth_read")),
        cache_tokens=_cache_tokens(config, replicas),
        input_tokens=found.whole.input_tokens,
        hit_tokens=found.whole.hit_tokens.all,
        ceiling_tokens=found.whole.ceiling_tokens,
        times=None if latency is None else _times(latency),
        busy=_busy(found, (latency.makespan or 0.0) * replicas if latency else 0.0),
        offered=found.load.offered if found.load else None,
        goodput=_middle(replays, found.slo, "goodput_requests_per_s"),
        attained=_middle(replays, found.slo, "attained_rate"),
        tokens_per_s=found.output.tokens_per_s if found.output else None,
        replays=replays,
    )


def _middle(replays: Document, slo: Goodput | None, name: str) -> float | None:
    """The median of the replays; the figure of the document where there is one."""
    values = replays.get(name)
    return median(values) if values else getattr(slo, name, None)


def _replicas(config: Mapping[str, Any]) -> int:
    divided = (config.get("prefill_replicas") or 0) + (config.get("decode_replicas") or 0)
    return int(divided or config.get("replicas") or 1)


def _link(config: Mapping[str, Any], ranks: int) -> float | None:
    """A multiple counts where the profile is one of the project's own."""
    text = str(config.get("host_bandwidth", ""))
    if text.endswith(" B/s"):
        return float(text.removesuffix(" B/s")) * ranks / 1e9
    name = config.get("hardware")
    if text.endswith("x") and name in hardware.names():
        reached = hardware.get(str(name)).reached_link_bytes_per_s
        return float(text[:-1]) * reached * ranks / 1e9
    return None


def _gb(bytes_per_s: float | None) -> float | None:
    return None if bytes_per_s is None else float(bytes_per_s) / 1e9


def _cache_tokens(config: Mapping[str, Any], replicas: int) -> int | None:
    if config.get("storage"):
        return None
    device, host = config.get("device_tokens") or 0, config.get("host_tokens") or 0
    both = device + host if config.get("exclusive") else max(device, host)
    return int(both) * replicas


def _times(latency: LatencyFigures) -> Times:
    ttft = latency.ttft
    parts = (latency.queue.mean, latency.load.mean, latency.compute.mean)
    return Times(ttft.mean, ttft.p50, ttft.p90, *parts)


def _busy(found: Result, total_s: float) -> dict[str, float]:
    links, storage = found.transfers or {}, found.storage
    ways = {
        "host link, to the device": links.get("h2d"),
        "host link, to the host": links.get("d2h"),
        "storage, reading": storage.read if storage else None,
        "storage, writing": storage.written if storage else None,
    }
    busy = {name: one.busy_s for name, one in ways.items() if one is not None}
    return {name: time / total_s for name, time in busy.items() if time is not None and total_s}
