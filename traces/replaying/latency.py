"""The times of the requests that ended: their distributions, and which limits each keeps."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import NO_PAGES
from sim.engine.sequence import RequestResult, Times
from sim.fleet import FleetResult
from sim.replica import TimedResult

from ..results import record
from ..results.record import PERCENTS, Spread
from .traffic import NS_PER_S, Slo

Kept: TypeAlias = NDArray[np.bool_]
_COLUMNS = (
    *("request", "arrival_ns", "first_token_ns", "finish_ns", "output_length"),
    *("queue_ns", "load_ns", "compute_ns"),
)


def spread(times_ns: Times, counts: Times | None = None) -> Spread:
    """Mean and percentiles in seconds; zeros without observations. counts: how often each time
    occurs; None for once."""
    if not len(times_ns):
        return Spread(0.0, 0.0, 0.0, 0.0, 0.0)
    points: NDArray[Any]
    if counts is None:
        mean = float(times_ns.mean())
        points = np.percentile(times_ns, PERCENTS, method="inverted_cdf")
    else:
        order = np.argsort(times_ns)
        up_to = np.cumsum(counts[order])
        total = int(up_to[-1])
        mean = float(np.dot(times_ns[order].astype(np.float64), counts[order])) / total
        ranks = [-(-percent * total // 100) for percent in PERCENTS]
        points = times_ns[order][np.searchsorted(up_to, ranks)]
    return Spread(mean / NS_PER_S, *(float(point) / NS_PER_S for point in points))


class Latency:
    """Of each request that ended, in the order of the trace: int64 nanoseconds, and tokens.

    ttft_ns = queue_ns + load_ns + compute_ns: see RequestResult in sim/engine/sequence. decode_ns:
    from the first token to the last one.
    """

    def __init__(self, result: TimedResult | FleetResult) -> None:
        self.requests, self.makespan_ns = result.requests, result.makespan_ns
        rows = [[getattr(request, name) for name in _COLUMNS] for request in self.requests]
        columns = np.array(rows, dtype=np.int64).reshape(-1, len(_COLUMNS)).T
        self.numbers, self.arrivals_ns, first, finish, self.output_tokens, *parts = columns
        self.queue_ns, self.load_ns, self.compute_ns = parts
        self.ttft_ns, self.decode_ns = first - self.arrivals_ns, finish - first
        self._gaps = result.gaps

    @property
    def generated_tokens(self) -> int:
        return int(self.output_tokens.sum())

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of the whole run."""
        return self.generated_tokens * NS_PER_S / self.makespan_ns if self.makespan_ns else 0.0

    @property
    def figures(self) -> record.Times:
        """The distributions of the times."""
        gaps = [(NO_PAGES, NO_PAGES), *(gaps.weighted(self.numbers) for gaps in self._gaps)]
        times, counts = (np.concatenate(each) for each in zip(*gaps, strict=True))
        several = self.output_tokens > 1
        return record.Times(
            ttft=spread(self.ttft_ns),
            queue=spread(self.queue_ns),
            load=spread(self.load_ns),
            compute=spread(self.compute_ns),
            tpot=spread(self.decode_ns[several] // (self.output_tokens[several] - 1)),
            itl=spread(times, counts),
            makespan=self.makespan_ns / NS_PER_S,
        )

    def slower(self, limit_ns: int) -> Times:
        """How many of the times between two tokens of each request are longer than a limit."""
        most = int(self.numbers.max(initial=-1)) + 1
        none = np.zeros(most, dtype=np.int64)
        return sum((gaps.slower(limit_ns, most) for gaps in self._gaps), none)[self.numbers]


# -- limits


def missed(slo: Slo, ttft_ns: Any, decode_ns: Any, gaps: Any) -> dict[str, Any]:
    """Whether a request, or each of several, misses each limit but that of `itl`, by its name.
    Exact: no division. gaps: between its tokens."""
    times = {"ttft": ttft_ns, "tpot": decode_ns, "e2e": ttft_ns + decode_ns}
    most = {name: limit * (gaps if name == "tpot" else 1) for name, limit in slo.limits}
    return {name: times[name] > limit for name, limit in most.items() if name in times}


def kept(slo: Slo, latency: Latency) -> Mapping[str, Kept]:
    """Whether each request keeps each limit, by the name of the limit."""
    gaps = np.maximum(latency.output_tokens, 1) - 1
    result = missed(slo, latency.ttft_ns, latency.decode_ns, gaps)
    if slo.itl_ns is not None:  # the nearest rank: at most one gap in a hundred is longer
        result["itl"] = latency.slower(slo.itl_ns) > gaps // 100
    return {name: ~result[name] for name, _ in slo.limits}


class Hopeless:
    """Stops a replay of which too many requests missed a limit. slo: the limits, `itl` does not
    count. most: requests that may miss them.

    ended: requests that have ended. missed: how many of them missed a limit. stopped: whether the
    replay was stopped.
    """

    def __init__(self, slo: Slo, most: int) -> None:
        self._slo, self._most = slo, most
        self.ended = self.missed = 0
        self.stopped = False

    def __call__(self, result: RequestResult) -> bool:
        ttft_ns = result.first_token_ns - result.arrival_ns
        decode_ns, gaps = result.finish_ns - result.first_token_ns, max(1, result.output_length) - 1
        self.ended += 1
        self.missed += any(missed(self._slo, ttft_ns, decode_ns, gaps).values())
        self.stopped = self.missed > self._most
        return self.stopped
