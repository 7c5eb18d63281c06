"""The figures of a replay: one typed record, from which its JSON document follows.

Each field and each `figure` is a key of the document, under its name and in its unit; docs/json.md
says what it means. The run fills the parts (traces/replaying), `reporting/results` puts them
together; terminal, reports, comparisons and sweeps read them. Does not measure or print.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any, TypeAlias, TypeVar

from hicache.storage.base import Losses

PERCENTS = (50, 90, 95, 99)


T = TypeVar("T")
NEEDED = "needed"
# A key without which no document is read. Documents of before may lack any other; the field is then
# None.
Needed: TypeAlias = Annotated[T, NEEDED]


class figure(property):  # noqa: N801
    """A figure that follows from the fields: it is in the document beside them."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in seconds. Percentiles are observed values (nearest rank)."""

    mean: Needed[float]
    p50: Needed[float]
    p90: Needed[float]
    p95: float
    p99: Needed[float]


@dataclass(frozen=True, slots=True)
class Pair:
    """Pages, bytes or states of both tiers that a device evicts from."""

    device: Needed[int]
    host: Needed[int]

    def times(self, factor: int) -> Pair:
        return Pair(self.device * factor, self.host * factor)


@dataclass(frozen=True, slots=True)
class Tiers:
    """Tokens by the tier that had them."""

    device: Needed[int]
    host: Needed[int]
    storage: Needed[int]

    @property
    def all(self) -> int:
        return self.device + self.host + self.storage


@dataclass(frozen=True, slots=True)
class Share:
    """Sums over some requests, in tokens. hits + computed = input.

    ceiling_tokens: that an unbounded cache, filled in file order, would have hit.
    first_seen_tokens: that no earlier request of the trace could have left in a cache.
    lost_tokens: of the ceiling, that were not hit: evicted, refused, or still being computed.
    """

    requests: int
    input_tokens: Needed[int]
    hit_tokens: Needed[Tiers]
    hit_rate: Needed[float]
    hit_rate_pages: float
    hit_rate_mean: float
    ceiling_tokens: int
    ceiling_rate: Needed[float]
    lost_tokens: Needed[int]

    @figure
    def computed_tokens(self) -> int:
        return self.input_tokens - self.hit_tokens.all

    @figure
    def first_seen_tokens(self) -> int:
        return self.input_tokens - self.ceiling_tokens

    @property
    def lost_rate(self) -> float:
        return self.rate(self.lost_tokens)

    def rate(self, tokens: int) -> float:
        return tokens / self.input_tokens if self.input_tokens else 0.0


def share(
    requests: int,
    input_tokens: int,
    hits: Tiers,
    ceiling: int,
    lost: int,
    rate_pages: float,
    rate_mean: float,
) -> Share:
    """The figures that follow from the sums."""
    total = input_tokens or 1
    return Share(
        requests=requests,
        input_tokens=input_tokens,
        hit_tokens=hits,
        hit_rate=hits.all / total,
        hit_rate_pages=rate_pages,
        hit_rate_mean=rate_mean,
        ceiling_tokens=ceiling,
        ceiling_rate=ceiling / total,
        lost_tokens=lost,
    )


NO_SHARE = share(0, 0, Tiers(0, 0, 0), 0, 0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Requests:
    """Some requests of the trace."""

    requests: int
    input_tokens: int


@dataclass(frozen=True, slots=True)
class TraceFigures:
    path: Needed[str]
    format: str
    requests: Needed[int]
    input_tokens: int
    block_size: int | None
    identity: bool


@dataclass(frozen=True, slots=True)
class Times:
    """The times of the requests that ended, in seconds. ttft = queue + load + compute: see
    RequestResult in sim/engine/sequence. itl: between two tokens, of all requests together."""

    ttft: Needed[Spread]
    queue: Needed[Spread]
    load: Needed[Spread]
    compute: Needed[Spread]
    tpot: Needed[Spread]
    itl: Spread
    makespan: float


@dataclass(frozen=True, slots=True)
class Output:
    tokens: int
    tokens_per_s: Needed[float]


@dataclass(frozen=True, slots=True)
class Class:
    """Requests that have something in common. by: what, such as `prompt_tokens`."""

    by: str
    name: str
    requests: int
    attained_requests: int

    @property
    def rate(self) -> float:
        return self.attained_requests / self.requests


@dataclass(frozen=True, slots=True)
class Goodput:
    """Limits, and the requests that keep all of them. attained_error: how far chance may move
    `attained_rate`; None for few requests. missed: requests that miss each limit."""

    ttft_s: float | None
    tpot_s: float | None
    itl_s: float | None
    e2e_s: float | None
    attained_requests: int
    attained_rate: float | None
    attained_error: float | None
    goodput_requests_per_s: float | None
    goodput_tokens_per_s: float
    missed: Mapping[str, int | None]
    classes: Sequence[Class]


@dataclass(frozen=True, slots=True)
class LoadFigures:
    """See reporting/limits. offered: None if it cannot be told."""

    offered: float | None
    queueing_share: float
    overloaded: bool


@dataclass(frozen=True, slots=True)
class Transfer:
    """One direction of the host link. bytes: of one rank. busy_s: None without a clock."""

    bytes: int
    bytes_per_rank: int
    bytes_total: Needed[int]
    busy_s: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Prefetches that ended for one reason, and their tokens."""

    requests: int
    asked_tokens: int
    found_tokens: int
    fetched_tokens: int


@dataclass(frozen=True, slots=True)
class PrefetchFigures:
    """begun: lookups. ended: by reason."""

    begun: int
    ended: Mapping[str, Ended]


@dataclass(frozen=True, slots=True)
class Moved:
    """Values that moved whole, in bytes of all ranks. values: all, by what became of them."""

    bytes_total: Needed[int]
    busy_s: float | None
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Lost:
    """Tokens that had been seen before and were not hit, and the requests that lost them."""

    requests: int
    tokens: Needed[int]


@dataclass(frozen=True, slots=True)
class Storage:
    """losses: what the store did not do. evicted_values: that had to make room in a real store
    since it was made, by this run or an earlier one. lost_tokens: by reason, the largest first."""

    prefetches: PrefetchFigures
    stores: int
    read: Needed[Moved]
    written: Needed[Moved]
    losses: Losses
    evicted_values: int
    lost_tokens: Needed[Mapping[str, Lost]]


@dataclass(frozen=True, slots=True)
class Component:
    """The pools of one component, in pages or states. page_bytes: of one rank, under the name of
    the first version.

    cached_at_rest, garbage_at_rest: at the end of the run; garbage is cached, but no boundary that
    a request could reuse requires it. None after an interrupt. most_in_use: on device at once.
    evicted_along: device pages evicted together with another pool's victim, although this pool had
    as many free. Both with several components only.
    """

    page_bytes: int
    page_bytes_total: int
    capacity: Pair
    pool_bytes_per_rank: Pair
    pool_bytes_total: Pair
    backed_up: int
    loaded: int
    evicted: Pair
    cached_at_rest: Pair | None
    garbage_at_rest: Pair | None
    most_in_use: int | None = None
    evicted_along: int | None = None

    @figure
    def page_bytes_per_rank(self) -> int:
        return self.page_bytes


@dataclass(frozen=True, slots=True)
class LookupFigures:
    """Depths and hits in tokens."""

    request: int
    wanted: int
    device: int
    host: int
    depths: Mapping[str, int]
    capped_by: str
    because: str


@dataclass(frozen=True, slots=True)
class Turn:
    """All requests that are the same turn of their conversations, at their first admission."""

    turn: int
    requests: int
    input_tokens: int
    hit_tokens: int

    @figure
    def hit_rate(self) -> float:
        return self.hit_tokens / self.input_tokens if self.input_tokens else 0.0


@dataclass(frozen=True, slots=True)
class Checks:
    """How much was checked: operations seen, incremental and full checks, violations.

    byte_checks, access_checks: in timed mode, comparisons of pages, and accesses ordered by
    the hazard detector. specified: operations in which the specification decided the same.
    not_judged: in words, what it could not judge.
    """

    level: Needed[str]
    operations: int
    incremental: int
    full: int
    violations: Needed[int]
    byte_checks: int
    access_checks: int
    specified: int
    not_judged: str


@dataclass(frozen=True, slots=True)
class Replica:
    """One replica. role: mixed, prefill or decode. requests: that it served, or its part of them.
    input_tokens, hit_tokens: of the prompts that it prefilled; 0 for a decode replica.
    output_tokens: that it sampled. ttft_s: of the requests that it prefilled, None without a clock.
    evicted_pages: of full attention. checked_operations: of its core."""

    replica: int
    role: str
    requests: int
    input_tokens: int
    hit_tokens: int
    hit_rate: float | None
    computed_tokens: int
    output_tokens: int
    ttft_s: Spread | None
    evicted_pages: Pair
    checked_operations: int
    digest: str


@dataclass(frozen=True, slots=True)
class Imbalance:
    """The largest over the mean, of the replicas that prefill."""

    requests: float
    computed_tokens: float


@dataclass(frozen=True, slots=True)
class KvLink:
    """What moved from prefill to decode replicas. busy_s: summed over the senders. cached_pages: on
    the decode replica already."""

    bytes_total: int
    busy_s: float
    requests: int
    moved_pages: int
    cached_pages: int


@dataclass(frozen=True, slots=True)
class Fleet:
    """elsewhere_tokens: of prompts that an earlier request of the trace had, but none that was sent
    to the same replica. kv_link, handoff_s: with decode replicas."""

    replicas: Sequence[Replica]
    imbalance: Imbalance
    elsewhere_tokens: int
    kv_link: KvLink | None = None
    handoff_s: Mapping[str, Spread] | None = None


@dataclass(frozen=True, slots=True)
class Stages:
    """Pipeline stages, of all replicas together. computing_s: how long each computed, while passes
    were under way for under_way_s. idle_rate: the part of this in which it did not."""

    computing_s: Sequence[float]
    under_way_s: float
    idle_rate: Sequence[float]


@dataclass(frozen=True, slots=True)
class ErrorOf:
    runs: Needed[int]
    median: float | None


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """What is read of the error to expect, which traces/expected words."""

    validated: Needed[bool]
    ttft: Needed[ErrorOf]
    tpot: Needed[ErrorOf]
    throughput: Needed[ErrorOf]


Expected: TypeAlias = Annotated[Mapping[str, Any], ExpectedError]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What every document of a replay has, that of a report's variant too."""

    digest: Needed[str]
    config: Needed[Mapping[str, Any]]
    whole: Needed[Share]
    latency_s: Times | None
    expected_error: Expected | None
    slo: Goodput | None
    output: Output | None
    load: LoadFigures | None
    transfers: Needed[Mapping[str, Transfer]]
    evicted_pages: Needed[Pair]
    checks: Needed[Checks]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Figures):
    """The document of `hicache replay`. steady: the second half of the requests. Times, and what
    follows from them, are None without a clock."""

    interrupted: bool
    served_requests: int
    trace: TraceFigures
    skipped: Requests
    uncached: Requests
    steady: Share
    latency_s: Times | None = None
    expected_error: Expected | None = None
    slo: Goodput | None = None
    output: Output | None = None
    load: LoadFigures | None = None
    times_from: str | None = None
    stages: Stages | None = None
    preempted: int | None = None
    refused: Mapping[str, int]
    storage: Storage | None = None
    components: Mapping[str, Component]
    lookups: Sequence[LookupFigures] | None = None
    turns_from: str | None = None
    turns: Sequence[Turn] | None = None
    fleet: Fleet | None = None
    wall_s: float


def document(record: Any) -> Any:
    """The record as JSON values. A field whose default is None is left out while it is None."""
    if is_dataclass(record):
        values = ((one, getattr(record, one.name)) for one in fields(record))
        found = {
            one.name: document(value)
            for one, value in values
            if value is not None or one.default is not None
        }
        figures = (name for name, one in vars(type(record)).items() if isinstance(one, figure))
        return found | {name: getattr(record, name) for name in figures}
    if isinstance(record, Mapping):
        return {name: document(value) for name, value in record.items()}
    if isinstance(record, Sequence) and not isinstance(record, str):
        return [document(value) for value in record]
    return record
