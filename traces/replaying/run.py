"""The results of a replay in either mode, from which the report and the document are made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hicache.core.types import NO_PAGES, Pages
from sim.engine.sequence import RequestResult
from sim.engine.token_gaps import TokenGaps
from sim.fleet.fleet import FleetResult
from sim.fleet.handoff import Trip
from sim.replica import TimedResult

from ..results.record import (
    PERCENTS,
    Checks,
    Component,
    Fleet,
    Pair,
    Spread,
    Stages,
    Storage,
    Times,
    Transfer,
    Turn,
)
from .account import Account, Lookups
from .following import History
from .load import Served
from .timeline import Copies, Timeline

NS_PER_S = 1_000_000_000


_NOTHING = Spread(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Latency:
    """int64 nanoseconds per finished request; tpot_ns only for two output tokens or more.

    ttft_ns = queue_ns + load_ns + compute_ns: see RequestResult in sim/engine/sequence. requests:
    the finished requests, in the order of the trace. gaps: the times between tokens of each engine.
    """

    ttft_ns: Pages
    queue_ns: Pages
    load_ns: Pages
    compute_ns: Pages
    tpot_ns: Pages
    makespan_ns: int
    generated_tokens: int
    requests: tuple[RequestResult, ...]
    gaps: tuple[TokenGaps, ...] = ()

    @property
    def figures(self) -> Times:
        """The distributions of the times."""
        return Times(
            ttft=spread(self.ttft_ns),
            queue=spread(self.queue_ns),
            load=spread(self.load_ns),
            compute=spread(self.compute_ns),
            tpot=spread(self.tpot_ns),
            itl=self._itl,
            makespan=self.makespan_ns / NS_PER_S,
        )

    @property
    def _itl(self) -> Spread:
        """The times between two tokens of a request, of all requests together."""
        counted = [gaps.weighted(self._numbers) for gaps in self.gaps]
        times = [NO_PAGES, *(times for times, _ in counted)]
        counts = [NO_PAGES, *(counts for _, counts in counted)]
        return spread_of_counted(np.concatenate(times), np.concatenate(counts))

    @property
    def _numbers(self) -> Pages:
        return np.array([one.request for one in self.requests], dtype=np.int64)

    @property
    def served(self) -> Served:
        """What limits are about (see load)."""
        numbers = self._numbers
        tokens = [max(1, one.output_length) for one in self.requests]
        most = int(numbers.max(initial=-1)) + 1

        def slower(limit_ns: int) -> Pages:
            none = np.zeros(most, dtype=np.int64)
            return sum((gaps.slower(limit_ns, most) for gaps in self.gaps), none)[numbers]

        return Served(
            ttft_ns=self.ttft_ns,
            decode_ns=np.array(
                [one.finish_ns - one.first_token_ns for one in self.requests], dtype=np.int64
            ),
            output_tokens=np.array(tokens, dtype=np.int64),
            slower=slower,
        )

    @property
    def tokens_per_s(self) -> float:
        """Output tokens per second of the whole run."""
        return self.generated_tokens * NS_PER_S / self.makespan_ns if self.makespan_ns else 0.0


def record_result(result: TimedResult | FleetResult, account: Account) -> Latency:
    """Adds the hits of the requests to the account; returns the latencies of finished requests."""
    for request in result.requests:
        account.admit(
            request.request, request.device_tokens, request.host_tokens, request.storage_tokens
        )
    table = np.array(
        [
            (
                request.arrival_ns,
                request.first_token_ns,
                request.finish_ns,
                request.output_length,
                request.queue_ns,
                request.load_ns,
                request.compute_ns,
            )
            for request in result.requests
        ],
        dtype=np.int64,
    ).reshape(-1, 7)
    arrival, first, finish, tokens, queue, load, compute = table.T
    several = tokens > 1
    return Latency(
        ttft_ns=first - arrival,
        queue_ns=queue,
        load_ns=load,
        compute_ns=compute,
        tpot_ns=(finish - first)[several] // (tokens[several] - 1),
        makespan_ns=result.makespan_ns,
        generated_tokens=int(tokens.sum()),
        requests=result.requests,
        gaps=result.gaps,
    )


@dataclass(frozen=True, slots=True)
class FleetUse:
    """choices: the replica of each request, by number. trips: None without decode replicas."""

    figures: Fleet
    choices: Mapping[int, int]
    trips: Mapping[int, Trip] | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """What a replay did. refused: admissions, chunks and growths refused, by reason. turns: of
    conversations; turns_from: what tells them (see turns).

    components, lookups, history: see their own records; history is kept where it was asked for.
    preempted: how often a request was preempted. interrupted: stopped by Ctrl-C; everything else
    then covers the part that ran. copies: when bytes moved, where it was asked for. fleet: what
    each replica did, if there are several; the other figures are then of all together. stages: use
    of pipeline stages. timelines: of each replica, where it was asked for.
    """

    account: Account
    transfers: Mapping[str, Transfer]
    lookups: Lookups
    refused: dict[str, int]
    checks: Checks
    digest: str
    components: Mapping[str, Component]
    turns: Sequence[Turn] = ()
    turns_from: str = ""
    wall_s: float = 0.0
    latency: Latency | None = None
    preempted: int = 0
    interrupted: bool = False
    history: History | None = None
    storage: Storage | None = None
    fleet: FleetUse | None = None
    copies: Copies | None = None
    stages: Stages | None = None
    timelines: Sequence[Timeline] = ()

    @property
    def backbone(self) -> Component:
        return next(iter(self.components.values()))

    @property
    def evicted(self) -> Pair:
        """Pages of the backbone that were evicted."""
        return self.backbone.evicted


def spread(times_ns: Pages) -> Spread:
    """Mean and percentiles in seconds; zeros without observations."""
    if not len(times_ns):
        return _NOTHING
    points = np.percentile(times_ns, PERCENTS, method="inverted_cdf")
    return Spread(float(times_ns.mean()) / NS_PER_S, *(float(point) / NS_PER_S for point in points))


def spread_of_counted(times_ns: Pages, counts: Pages) -> Spread:
    """The same where each time occurs so often."""
    if not len(times_ns):
        return _NOTHING
    order = np.argsort(times_ns)
    ordered, up_to = times_ns[order], np.cumsum(counts[order])
    total = int(up_to[-1])
    mean = float(np.dot(times_ns.astype(np.float64), counts)) / total
    ranks = [-(-percent * total // 100) for percent in PERCENTS]
    points = ordered[np.searchsorted(up_to, ranks)]
    return Spread(mean / NS_PER_S, *(float(point) / NS_PER_S for point in points))
