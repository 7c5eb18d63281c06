"""Which split of some accelerators serves most: tensor ranks times stages times replicas, at
equal numbers.

    idle        with hardly any load: a split whose requests miss the limits even then is out
    load        of each split, the largest at which enough requests keep every limit, to within 5 %
    just over   one replay of each at the smallest load that it does not serve: which limit is
                missed, what hits, and what waits
    pool        the same at 1.25 times that load with twice the pages: whether the pool binds

Host memory is divided among the replicas, so that all splits are the same machine. Does not word
anything or print; see splits_shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from hicache.core.errors import CallerError
from sim.times.roofline import Roofline

from ..curves.curves import CurveOptions, curves_of
from ..formats.base import Trace
from ..replaying.options import ReplayOptions
from ..replaying.settings import Settings
from ..sweeping.grid import Point, Value, check_simulated
from ..sweeping.running import How, Measured
from ..sweeping.work import opened_once
from . import plan
from .candidates import SURE, Candidate, Demand, Machines, demand_of, every
from .replays import Document, Replays
from .search import bracketed, typed
from .study import IDLE, open_loop, spread_of

LOOSE = 1 - 1 / SURE  # of a pass: without it passes would be SURE times as fast
_GUESS = 0.8  # of what a machine can do: where the search begins


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for beside the replay. tp, pp, replicas: to choose from; None for all, and for
    one stage. host_bytes: of all accelerators together."""

    hardware: str
    accelerators: int
    tp: Sequence[int] | None
    pp: Sequence[int] | None
    replicas: Sequence[int] | None
    host_bytes: int
    attain: Fraction
    how: How


@dataclass(frozen=True, slots=True)
class Split:
    """pool_tokens: on the devices of all replicas. idle: its replay with hardly any load. served,
    refused: the largest load that it serves and the smallest that it does not; both None where it
    serves none. best, over: the replays there; None without one. exchanges: the part of a pass that
    the ranks exchange, of a prefill and of a decoding one as in `over`; None where the time model
    does not tell. pool: whether twice the pages serve SURE times the load."""

    candidate: Candidate
    pool_tokens: int
    idle: Document | None = None
    served: Fraction | None = None
    refused: Fraction | None = None
    best: Document | None = None
    over: Document | None = None
    exchanges: tuple[float, float] | None = None
    pool: bool = False


@dataclass(frozen=True, slots=True)
class Splits:
    """found: the one that serves most first. refused: by reason, which cannot run the model."""

    trace: Trace
    settings: Settings
    options: ReplayOptions
    asked: Asked
    demand: Demand
    found: Sequence[Split]
    refused: Mapping[str, Sequence[str]]
    spread: bool
    replays: int
    ended: Measured


def splits(given: ReplayOptions, asked: Asked, command: str) -> Splits:
    """Runs everything. Raises CallerError for what cannot be run, before the first replay."""
    check_simulated(given.storage)
    _check_load(given)
    base = replace(given, check=given.check or "off", seed=given.seed or 1)
    base, spread = spread_of(base, opened_once)
    trace = opened_once(plan.bare(base))
    shapes = _shapes(asked)
    settings = _first(base, trace, asked.hardware, shapes)
    curve = None
    if trace.identity:
        paged = trace.paged(settings.core.page_size)
        each = settings.host_page_bytes[0] * settings.page_ranks // paged.page_size
        curve = curves_of(trace, paged, CurveOptions((), bytes_per_token=each)).lru
    demand = demand_of(trace, curve, Fraction(1))
    if not demand.duration_s:
        raise CallerError(
            f"--accelerators: expected requests that arrive at times of their own, found that "
            f"those of {trace.path} wait for others or come at once; give a trace with times"
        )
    machines, stored = Machines(base, trace, demand, curve), base.storage is not None
    known, refused = every([asked.hardware], shapes, (0,), (False,), machines)
    rows = []
    for one in known:
        own = machines.settings(*one.machine).core
        candidate = replace(one, host_bytes=asked.host_bytes // one.replicas, stored=stored)
        rows.append(Split(candidate, own.device_pages[0] * own.page_size * one.replicas))
    replays = Replays(asked.how, command, base, attain=asked.attain)
    whole = Replays(asked.how, command, base)

    def named(one: Split) -> plan.Named:
        return one.candidate.label, one.candidate.point(base)

    def serves(document: Document) -> bool:
        return "stopped" not in document and document["slo"]["attained_rate"] >= asked.attain

    starts = [typed(_GUESS * (machines.can_do(one.candidate) or 1)) for one in rows]
    idle = whole.run(
        [
            plan.loaded(named(one), typed(float(start / IDLE)))
            for one, start in zip(rows, starts, strict=True)
        ]
    )
    rows = [replace(one, idle=document) for one, document in zip(rows, idle, strict=True)]
    able = [
        (one, start)
        for one, start in zip(rows, starts, strict=True)
        if one.idle is not None and serves(one.idle)
    ]
    searched = bracketed(
        [named(one) for one, _ in able], [start for _, start in able], replays, serves
    )
    ended = [
        replace(one, served=search.served, refused=search.refused)
        for (one, _), search in zip(able, searched, strict=True)
    ]
    ended = _explained(ended, [named(one) for one in ended], replays, whole, machines, serves)
    rest = [one for one in rows if one.idle is not None and not serves(one.idle)]
    return Splits(
        *(trace, settings, base, asked, demand, [*sorted(ended, key=_order), *rest], refused),
        *(
            spread,
            replays.count + whole.count,
            replays.ended if replays.ended.code else whole.ended,
        ),
    )


def _check_load(given: ReplayOptions) -> None:
    """Raises CallerError where there is no load to search."""
    fixed = ("speed", "request_rate", "concurrency")
    used = [name for name in fixed if getattr(given, name) is not None]
    used += ["closed_loop"] * (not open_loop(given) and not used)
    if used:
        name = used[0].replace("_", "-")
        raise CallerError(
            f"--{name}: --accelerators searches the largest load that each split serves; leave it "
            "out"
        )


def _shapes(asked: Asked) -> list[tuple[int, int, int]]:
    """tp, pp and replicas of each split."""
    count = asked.accelerators
    found = [
        (tp, pp, count // (tp * pp))
        for pp in asked.pp or (1,)
        for tp in asked.tp or range(1, count + 1)
        if count % (tp * pp) == 0
        and (asked.replicas is None or count // (tp * pp) in asked.replicas)
    ]
    if not found:
        raise CallerError(
            f"--accelerators: expected --tp times --pp times --replicas to be {count}, found no "
            "such values; leave one of them out"
        )
    return found


def _first(
    base: ReplayOptions, trace: Trace, hardware: str, shapes: Sequence[tuple[int, int, int]]
) -> Settings:
    """The settings of the first split that can run the model. Raises CallerError if none can."""
    refused: CallerError | None = None
    for tp, pp, replicas in shapes:
        point = Candidate(hardware, tp, replicas, pp=pp).point(base)
        try:
            return plan.resolved(point.options, base, trace)[0]
        except CallerError as error:
            refused = error
    assert refused is not None
    raise refused


def _order(one: Split) -> tuple[float, str]:
    return -float(one.served or 0), one.candidate.label


def _explained(
    rows: Sequence[Split],
    named: Sequence[plan.Named],
    replays: Replays,
    whole: Replays,
    machines: Machines,
    serves: Callable[[Document], bool],
) -> list[Split]:
    """With the replays that say what binds each."""

    def at(load: Fraction | None, one: plan.Named) -> plan.Named | None:
        return None if load is None else plan.loaded(one, load)

    each = list(zip(rows, named, strict=True))
    bests = _ran(replays, [at(row.served, one) for row, one in each])
    overs = _ran(whole, [at(row.refused, one) for row, one in each])
    wider = _ran(replays, [_wider(row, one, machines) for row, one in each])
    return [
        replace(
            row,
            best=best,
            over=over,
            exchanges=None if over is None else _exchanges(row.candidate, over, machines),
            pool=wide is not None and serves(wide),
        )
        for row, best, over, wide in zip(rows, bests, overs, wider, strict=True)
    ]


def _ran(replays: Replays, wanted: Sequence[plan.Named | None]) -> list[Document | None]:
    """The document of each; None where there is nothing to replay."""
    found = iter(replays.run([one for one in wanted if one is not None]))
    return [None if one is None else next(found) for one in wanted]


def _wider(row: Split, named: plan.Named, machines: Machines) -> plan.Named | None:
    """With twice the pages on device, at SURE times the load that it does not serve."""
    if row.refused is None:
        return None
    label, point = named
    pages = 2 * machines.settings(*row.candidate.machine).core.device_pages[0]
    varied = point.varied | {"device_pages": Value(str(pages), pages)}
    point = Point(replace(point.options, device_pages=pages, device_tokens=None), varied)
    return plan.loaded((f"{label}, twice the pages", point), typed(float(row.refused) * SURE))


def _exchanges(
    one: Candidate, document: Document, machines: Machines
) -> tuple[float, float] | None:
    """Of a prefill pass, and of a pass with as many sequences as were decoding on average."""
    times = machines.times(*one.machine)
    if not isinstance(times, Roofline):
        return None
    budget = machines.settings(*one.machine).engine.token_budget
    latency, output = document["latency_s"], document["output"]["tokens"]
    busy = output * latency["tpot"]["mean"] / latency["makespan"] / one.replicas
    decoding = max(1, round(busy))
    each = document["whole"]["input_tokens"] // document["whole"]["requests"]
    return (
        times.exchanged(((each // 2, each // 2 + budget),), 0, 0),
        times.exchanged((), decoding, decoding * each),
    )
