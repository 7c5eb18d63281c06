"""The result of a replay: one typed record, which is the JSON document.

Every key of a document is a field here, under its name and in its unit; `name: meaning` lines of
the docstrings become docs/json.md (see pages). The run fills the parts (traces/replaying),
`reporting/results` puts them together; reports, comparisons, sweeps and `size` read them back with
`record_of`, strictly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType, ValidationError, convert, to_builtins

from hicache.core.errors import CallerError
from hicache.storage.base import Losses
from hicache.version import VERSION

SCHEMA = 2  # grows when a key changes its meaning or goes
_RENAMED = {"whole": "total"}  # keys of schema 1
PERCENTS = (50, 90, 95, 99)
QUANTILES = 101  # from the least to the largest, one per cent apart
NOT_FOLLOWED = "evicted_or_not_ready"  # what a hit ended by, where nobody asked which

T = TypeVar("T")
Int: TypeAlias = Annotated[int, Meta(ge=-(10**18), le=10**18)]
Float: TypeAlias = Annotated[float, Meta(ge=-1e18, le=1e18)]
Series: TypeAlias = Sequence[Float]
Quantiles: TypeAlias = Annotated[Sequence[Float], Meta(min_length=QUANTILES, max_length=QUANTILES)]


class Spread(Struct, frozen=True):
    """A distribution in seconds; percentiles are observed values (nearest rank)."""

    mean: Float
    p50: Float
    p90: Float
    p95: Float
    p99: Float


class Pair(Struct, frozen=True):
    """Pages, bytes or states of both tiers that a device evicts from."""

    device: Int
    host: Int

    def times(self, factor: int) -> Pair:
        return Pair(self.device * factor, self.host * factor)


class Tiers(Struct, frozen=True):
    """Tokens by the tier that had them at the first admission.

    storage: what the request's own prefetch had brought to host
    """

    device: Int
    host: Int
    storage: Int

    @property
    def all(self) -> int:
        return self.device + self.host + self.storage


class Share(Struct, frozen=True):
    """Sums over some requests that were served. Hits + computed = input.

    hit_rate: of tokens
    hit_rate_pages: of pages; a partial page counts as one
    hit_rate_mean: mean of each request's own rate
    ceiling_tokens: hits of an unbounded cache, filled in the order of the trace
    first_seen_tokens: input - ceiling: no earlier request has them
    lost_tokens: of the ceiling, but not hit: evicted, refused, or still being computed
    """

    requests: Int
    input_tokens: Int
    hit_tokens: Tiers
    computed_tokens: Int
    hit_rate: Float
    hit_rate_pages: Float
    hit_rate_mean: Float
    ceiling_tokens: Int
    ceiling_rate: Float
    first_seen_tokens: Int
    lost_tokens: Int

    @property
    def lost_rate(self) -> float:
        return self.rate(self.lost_tokens)

    def rate(self, tokens: int) -> float:
        return tokens / self.input_tokens if self.input_tokens else 0.0


class TraceFigures(Struct, frozen=True):
    """What was played, after `--limit`.

    path: the file or the built-in workload
    block_size: tokens of a block of the trace's own ids; null if the trace has tokens
    identity: whether the trace says which prompts begin alike; without it there are no hits
    """

    path: str
    format: str
    requests: Int
    input_tokens: Int
    block_size: Int | None = None
    identity: bool = True

    @classmethod
    def of(cls, trace: Any) -> TraceFigures:
        """trace: of traces/formats."""
        jobs = trace.jobs
        return cls(
            path=trace.path,
            format=trace.format,
            requests=len(jobs),
            input_tokens=jobs.input_tokens,
            block_size=trace.block_size,
            identity=trace.identity,
        )


class Times(Struct, frozen=True):
    """The times of the requests that ended; ttft = queue + load + compute (docs/replay.md).

    itl: between two tokens, of all requests together
    makespan: seconds from 0 to the end of the last request
    """

    ttft: Spread
    queue: Spread
    load: Spread
    compute: Spread
    tpot: Spread
    itl: Spread
    makespan: Float


class Output(Struct, frozen=True):
    """Of requests that ended, over the makespan."""

    tokens: Int
    tokens_per_s: Float


class Goodput(Struct, frozen=True):
    """Limits (null where not given), and the requests that keep all of them.

    attained_rate: of those that ended
    attained_error: how far it may be from that of other traces of the same traffic, 19 times of 20
        (batch means); null for few requests
    missed: requests that miss each limit; null where it is not given
    """

    ttft_s: Float | None
    tpot_s: Float | None
    itl_s: Float | None
    e2e_s: Float | None
    attained_requests: Int
    attained_rate: Float | None
    attained_error: Float | None
    goodput_requests_per_s: Float | None
    goodput_tokens_per_s: Float
    missed: Mapping[str, Int | None]


class LoadFigures(Struct, frozen=True):
    """The load that was played.

    offered: over what the machine can do; null: unknown
    queueing_share: of all time to first token
    running_mean, running_most: requests running at once, of all replicas
    """

    offered: Float | None
    queueing_share: Float
    overloaded: bool
    running_mean: Float
    running_most: Int


class Measured(Struct, frozen=True):
    """What the log itself measured, beside what is predicted; null where it does not say."""

    cached_tokens: Int | None = None
    ttft_p50_s: Float | None = None


class Limit(Struct, frozen=True, rename={"tries": "try"}):
    """What limits the result.

    by: `load` (more than the machine can do), `device_memory` (requests wait for pages),
        `cache_memory` (evicted before it was asked for again), `not_ready` (still being computed),
        `router` (they lie on other replicas), `between_states` (behind the last state that the
        engine keeps), `new_tokens`, `no_repeats` or `nothing_served`; a component without a window
        or state
    why: its figures
    tries: options of the same command to try, the best one first
    """

    by: str
    why: str
    tries: Sequence[str] = ()

    @property
    def text(self) -> str:
        return f"{self.by.replace('_', ' ')}: {self.why}"


class Transfer(Struct, frozen=True):
    """One direction of the host link.

    bytes, bytes_per_rank: of one rank
    busy_s: null in hits mode
    """

    bytes: Int
    bytes_per_rank: Int
    bytes_total: Int
    busy_s: Float | None


class Ended(Struct, frozen=True):
    """Prefetches that ended for one reason, and their tokens."""

    requests: Int
    asked_tokens: Int
    found_tokens: Int
    fetched_tokens: Int


class PrefetchFigures(Struct, frozen=True):
    """Lookups in storage.

    ended: by reason: `complete`, `miss`, `too_short`, `budget`, `no_host_pages`, `short` (delivered
        less than said), `late`, `flushed`, `detached`
    """

    begun: Int
    ended: Mapping[str, Ended]


class Moved(Struct, frozen=True):
    """Values that moved whole; a pool that is identical on all ranks counts once.

    values: pages: `done`, `missing`, `corrupt`, `full`, `failed`
    """

    bytes_total: Int
    busy_s: Float | None
    values: Mapping[str, Int]


class Storage(Struct, frozen=True):
    """What storage did; with `--storage`.

    stores: of a node each
    losses: what the store did not do: values of a real one, pages of a simulated one
    evicted_values: since a real store was made; 0 where it does not count them
    """

    prefetches: PrefetchFigures
    stores: Int
    read: Moved
    written: Moved
    losses: Losses
    evicted_values: Int


class Component(Struct, frozen=True, omit_defaults=True):
    """The pools of one component, in pages; of mamba in states.

    page_bytes: of a page or a state on one rank
    backed_up, loaded: copied to host, and back
    """

    page_bytes: Int
    page_bytes_total: Int
    capacity: Pair
    pool_bytes_per_rank: Pair
    pool_bytes_total: Pair
    backed_up: Int
    loaded: Int
    evicted: Pair


class Turn(Struct, frozen=True):
    """All requests that are the same turn of their conversations, from 1."""

    turn: Int
    requests: Int
    input_tokens: Int
    hit_tokens: Int
    hit_rate: Float


class Checks(Struct, frozen=True):
    """How much was checked.

    operations: watched
    incremental, full: checks of one operation's changes, and of the whole state
    byte_checks, access_checks: comparisons of pages; accesses ordered by the hazard detector
    specified: operations in which the specification decided the same
    specified_nodes, specified_pages: of the largest cache
    not_judged: what it could not judge, in words
    """

    level: str
    operations: Int
    incremental: Int
    full: Int
    violations: Int
    byte_checks: Int
    access_checks: Int
    specified: Int
    specified_nodes: Int
    specified_pages: Int
    not_judged: str


class Replica(Struct, frozen=True):
    """One replica.

    role: `mixed`, `prefill` or `decode`
    requests: that it served, or its part of them
    input_tokens: of prompts that it prefilled, as hits and computed tokens
    ttft_s: null for a decode replica and in hits mode
    """

    replica: Int
    role: str
    requests: Int
    input_tokens: Int
    hit_tokens: Int
    hit_rate: Float | None
    computed_tokens: Int
    output_tokens: Int
    ttft_s: Spread | None
    evicted_pages: Pair
    checked_operations: Int
    digest: str


class Imbalance(Struct, frozen=True):
    """The largest over the mean, of the replicas that prefill."""

    requests: Float
    computed_tokens: Float


class KvLink(Struct, frozen=True):
    """What moved from prefill to decode replicas.

    busy_s: summed over the senders
    cached_pages: on the decode replica already
    """

    bytes_total: Int
    busy_s: Float
    requests: Int
    moved_pages: Int
    cached_pages: Int


class Fleet(Struct, frozen=True, omit_defaults=True):
    """Several replicas; all other figures are of all together.

    handoff_s: after the first token: `decode_wait` until the decode replica has pages, `link_wait`
        until the transfer begins, and its length, `link`
    """

    replicas: Sequence[Replica]
    imbalance: Imbalance
    kv_link: KvLink | None = None
    handoff_s: Mapping[str, Spread] | None = None


class Stages(Struct, frozen=True):
    """Pipeline stages, of all replicas together; with `--pp`.

    computing_s: how long each computed, while passes were under way for `under_way_s`
    idle_rate: the part of this in which it did not
    """

    computing_s: Series
    under_way_s: Float
    idle_rate: Series


class ErrorOf(Struct, frozen=True):
    """The absolute errors of one metric in judged runs.

    nine_tenths: what nine of ten do not exceed
    differs: in what those runs differ from this one: `engine`, `saturation`, `ranks`, `precision`,
        `load`, `model`
    """

    runs: Int
    median: Float
    nine_tenths: Float
    differs: Sequence[str] = ()


class ExpectedError(Struct, frozen=True):
    """The error to expect of predicted times, from published runs (docs/replay.md).

    missing: what no published run had, so that nothing is validated
    published: whether runs of this engine, accelerator and model were published
    """

    missing: str | None
    published: bool
    ttft: ErrorOf | None = None
    tpot: ErrorOf | None = None
    throughput: ErrorOf | None = None


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The document of `hicache replay`, with [the head](#all-documents) and `warnings[]`; after
    Ctrl-C, of the requests that were served until then. Hits mode has no times, and nothing that
    follows from them.

    label: in a report or a sweep
    digest: of every event, decision and time
    config: the settings by the names of their options, also those that were chosen
    options: that were given, which `--config` reads again
    total: of all requests
    steady: of the second half of the requests
    lost_by_reason: the lost tokens, the largest first, by `hit_ended_by` of requests;
        `evicted_or_not_ready` where pages were not followed
    slo: with `--slo`
    ttft_quantiles_s: 101 observed values, one per cent apart; in a report or a sweep
    times_from: the time model, in words
    preempted: how often a request gave its pages back
    refused: admissions, chunks and growths asked for again, by reason: `no_pages`, `writing_back`,
        `arriving`, `fetching`; with ` of COMPONENT` for other pools than full attention's
    transfers: `d2h` to host, `h2d` to the device
    evicted_pages: of full attention
    components: by name; full attention first
    turns_from: what tells the turns: `after` or `session`
    fleet: with several replicas
    measured: of a log that measured it
    """

    label: str = ""
    digest: str
    interrupted: bool
    served_requests: Int
    trace: TraceFigures
    config: Mapping[str, Any]
    options: Mapping[str, Any] | None = None
    total: Share
    steady: Share
    lost_by_reason: Mapping[str, Int]
    latency_s: Times | None = None
    expected_error: ExpectedError | None = None
    slo: Goodput | None = None
    output: Output | None = None
    load: LoadFigures | None = None
    times_from: str | None = None
    stages: Stages | None = None
    preempted: Int | None = None
    refused: Mapping[str, Int]
    transfers: Mapping[str, Transfer]
    evicted_pages: Pair
    storage: Storage | None = None
    components: Mapping[str, Component]
    turns_from: str | None = None
    turns: Sequence[Turn] | None = None
    checks: Checks
    fleet: Fleet | None = None
    measured: Measured | None = None
    limit: Limit | None = None
    ttft_quantiles_s: Quantiles | None = None
    wall_s: Float


class Request(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of `--requests`, in the order of the trace; their sums are exactly the figures above.

    line: of the trace, from 1; a header counts
    hit_ended_by: `complete` (but for what an engine must compute), `first_seen` (no earlier request
        shares more), `evicted`, `not_ready` (an earlier request had still to compute it),
        `not_loaded` (host has more), `between_states` (less than the distance of two), `together`,
        a component without a window or state, or with several replicas `not_here` (another one may
        have it)
    last_seen_in_request: the latest earlier one, of the same replica, with the next page; null
        where none is known
    decode_replica: null if it had one token to generate
    arrival_ns: in virtual time; timed mode only, as all below
    slo_missed: limits; with `--slo`
    decode_wait_ns: as in `fleet.handoff_s`, with the keys below
    """

    request: Int
    line: Int
    input_tokens: Int
    output_tokens: Int
    hit_tokens: Tiers
    computed_tokens: Int
    ceiling_tokens: Int
    first_seen_tokens: Int
    lost_tokens: Int
    hit_ended_by: str
    last_seen_in_request: Int | None
    replica: Int | None = None
    decode_replica: Int | UnsetType | None = UNSET
    arrival_ns: Int | None = None
    queue_ns: Int | None = None
    load_ns: Int | None = None
    compute_ns: Int | None = None
    ttft_ns: Int | None = None
    tpot_ns: Int | UnsetType | None = UNSET
    finish_ns: Int | None = None
    refusals: Int | None = None
    preemptions: Int | None = None
    slo_missed: Sequence[str] | None = None
    decode_wait_ns: Int | None = None
    link_wait_ns: Int | None = None
    link_ns: Int | None = None
    link_bytes: Int | None = None


def head(command: str, complete: bool) -> dict[str, object]:
    """The keys that every document has. command: as the user typed it."""
    return {"schema": SCHEMA, "hicache_version": VERSION, "command": command, "complete": complete}


def upgraded(value: Any) -> Any:
    """A value of a document of schema 1 under the keys of this one."""
    if isinstance(value, dict):
        return {_RENAMED.get(key, key): upgraded(inner) for key, inner in value.items()}
    return [upgraded(inner) for inner in value] if isinstance(value, list) else value


def document(record: Any) -> Any:
    """The record as JSON values."""
    return to_builtins(record)


def record_of(kind: type[T], value: object, where: str = "document") -> T:
    """The record of JSON values. Raises CallerError with one line for values that are none. Other
    keys are left out."""
    try:
        return convert(value, kind)
    except UnicodeEncodeError:
        raise CallerError(f"{where}: expected Unicode, found half a character") from None
    except ValidationError as error:
        text, _, at = str(error).partition(" - at `$")
        place = f"{at[:200].strip('.`')}: " if at else ""
        what = text[0].lower() + text[1:]
        raise CallerError(f"{where}: {place}{what}; make it again with this version") from None
