"""What can be bought: accelerators, how the model is split over them, host memory and storage; what
each costs an hour, which of two is the stronger, and what each can do without a replay.

    split      `tp` ranks share each of `pp` stages, and `replicas` of the model serve side by side
    host       bytes of host memory of each replica
    stored     whether the store of --storage is behind it

Does not replay; see search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from hicache.models.base import stage_layers
from sim.times.base import Chunks, TimeModel, stages_ns

from ..curves import Curve, CurveOptions, Curves, curves_of
from ..formats.base import Trace
from ..replaying.config import ReplayConfig, resolve
from ..replaying.options import Need, ReplayOptions, that_need
from ..reporting import gigabytes
from ..sweeping.grid import Point, Value
from .prices import LIST_PRICES, Prices

ATTAIN = Fraction(9, 10)  # of the requests, as DistServe (OSDI 2024) counts
MOST_GPUS = 8
MOST_SIZES = 4
NEARLY_ALL = Fraction(19, 20)  # of the hits of an unbounded cache
LITTLE = 0.01  # of all prompt tokens: a size that adds less is not tried
SAME = 0.001  # of all prompt tokens: host memory that adds fewer hits changes nothing
OPTIMISM = 1.1  # by so much the queue of `in_time` may be too short or too long
_HOST_OF_A_GPU = 256 * 10**9  # bytes; a DGX H100 has 2 TB for eight, says its data sheet
_HOSTS = 3  # sizes of host memory beside none
_NOT_HARDWARE = ("gpu", "host", "storage")
_RANKS = (1, 2, 4, 8, 16, 32)
_GB = 1e9
_CONTEXT = 32_768  # tokens; the time of a chunk is a line over the tokens before it
# (prefill chunks, decoding sequences, their context): passes by which two machines are compared
_PASSES = (
    (((0, 512),), 0, 0),
    (((0, 8192),), 0, 0),
    (((32_768, 40_960),), 0, 0),
    ((), 1, 4_096),
    ((), 64, 262_144),
    ((), 256, 524_288),
    (((4_096, 8_192),), 64, 262_144),
)
_STORAGE = ("storage", *that_need(Need.STORE))
OF_HOST = tuple(name for name in that_need(Need.HOST) if name != "storage")
_OF_A_FLEET = ("router",)

Machine = tuple[str, int, int]  # accelerator, tensor ranks, stages


@dataclass(frozen=True, slots=True)
class Candidate:
    """See the module. host_bytes: of one replica. machine: what a replica runs on."""

    hardware: str
    tp: int
    replicas: int
    host_bytes: int = 0
    stored: bool = False
    pp: int = 1

    @property
    def gpus(self) -> int:
        return self.tp * self.pp * self.replicas

    @property
    def machine(self) -> Machine:
        return self.hardware, self.tp, self.pp

    @property
    def label(self) -> str:
        """What is bought, in words that name every total once."""
        ranks = ", ".join([f"tp {self.tp}"] * (self.tp > 1) + [f"pp {self.pp}"] * (self.pp > 1))
        split = f" ({ranks})" if ranks else ""
        if self.replicas > 1:
            split = f" ({self.replicas} replicas{f', each {ranks}' if ranks else ''})"
        told = f"{self.gpus} x {self.hardware}{split}"
        if self.host_bytes:
            each = f"{gigabytes(self.host_bytes)} of host memory"
            if self.replicas > 1:
                each += f" each, {gigabytes(self.host_bytes * self.replicas)} in all"
            told += f" with {each}"
        return told + (" and the store" if self.stored else "")

    def point(self, base: ReplayOptions) -> Point:
        """The replay of it. base: with the load, the limits and the store."""
        options = base if self.stored else bare(base)
        given: dict[str, Any] = {
            "hardware": self.hardware,
            "tp": self.tp,
            "pp": self.pp if self.pp > 1 else None,
            "replicas": self.replicas if self.replicas > 1 else None,
            "host_bytes": self.host_bytes or None,
        }
        if self.replicas == 1:
            given |= dict.fromkeys(_OF_A_FLEET)
        if self.host_bytes:
            given |= {name: getattr(base, name) for name in OF_HOST} | {"host_ratio": None}
        varied = {name: Value(str(value), value) for name, value in given.items() if value}
        varied["host_bytes"] = Value(str(self.host_bytes), self.host_bytes)
        return Point(replace(options, **given | {"pp": self.pp}), varied)


def bare(options: ReplayOptions) -> ReplayOptions:
    """The options without host memory, and without what reads it."""
    nothing: dict[str, Any] = dict.fromkeys((*OF_HOST, *_STORAGE))
    nothing |= {"host_ratio": Fraction(0), "host_bytes": None, "host_pages": None}
    return replace(options, **{**nothing, "exclusive": False})


def cost_of(one: Candidate, prices: Prices, storage_bytes: int) -> float:
    """For an hour. Raises CallerError for an accelerator without a price."""
    each = prices.of_gpu(one.hardware)
    if each is None:
        raise CallerError(
            f"--price: expected a price of {one.hardware}, found none; add {one.hardware}=2.5/h, "
            "or gpu=2.5/h for any accelerator"
        )
    amounts = {
        "host": one.host_bytes * one.replicas / _GB,
        "storage": storage_bytes / _GB if one.stored else 0.0,
    }
    return one.gpus * each + prices.cost_per_hour(amounts)


Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Demand:
    """What the trace asks for. duration_s: from the first arrival to the last one, at the load that
    is played; 0 where requests wait for others, so that there is no fixed time. lengths: tokens of
    each prompt. arrivals_s: of each request; empty without a fixed time."""

    requests: int
    input_tokens: int
    output_tokens: int
    duration_s: float
    lengths: Numbers
    arrivals_s: Numbers

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.duration_s if self.duration_s else 0.0


def demand_of(trace: Trace, speed: Fraction | None) -> Demand:
    """trace: with its load. speed: at which its times are played; None if they are not read."""
    jobs = trace.jobs
    fixed = bool((jobs.afters < 0).all()) and jobs.sender is None and speed is not None
    lengths = jobs.input_lengths.astype(np.int64)
    arrivals_s = jobs.arrivals_ns / 1e9 / float(speed or 1) if fixed else np.zeros(0)
    return Demand(
        len(jobs),
        int(lengths.sum()),
        int(jobs.output_lengths.astype(np.int64).sum()),
        float(np.ptp(arrivals_s)) if len(arrivals_s) else 0.0,
        lengths,
        arrivals_s,
    )


def hits_of(curve: Curve, requests: int, pages: int) -> Numbers:
    """Prompt tokens of each request that hit in an LRU cache of so many pages."""
    runs = curve.runs
    hit = np.clip(pages - curve.distance, 0, runs.pages)
    tokens = hit * curve.page_size - np.where(hit == runs.pages, curve.short, 0)
    found = np.zeros(requests, dtype=np.int64)
    np.add.at(found, runs.request, tokens)
    return found


class Machines:
    """The machines that one replica may be, each resolved once, and what candidates can do.

    curve: None for a trace of lengths only.
    """

    def __init__(
        self, base: ReplayOptions, trace: Trace, demand: Demand, curve: Curve | None
    ) -> None:
        self._base, self._trace = base, trace
        self._demand, self._curve = demand, curve
        self._resolved: dict[Machine, ReplayConfig | CallerError] = {}
        self.weaker = cache(self._weaker)
        self._slower = cache(self._is_slower)
        self._times = cache(lambda machine: self.settings(*machine).time_model)
        self.in_time = cache(self._in_time)
        self.likely = cache(self._likely)

    def settings(self, hardware: str, tp: int, pp: int) -> ReplayConfig:
        """Of a replica without host memory, whose pages are as large on host as the base would keep
        them there. Raises CallerError for one that cannot serve it."""
        key = hardware, tp, pp
        if key not in self._resolved:
            point = Candidate(hardware, tp, 1, pp=pp).point(self._base)
            try:
                settings, _ = resolve(point.options, self._trace)
                shared = self._base.parallelism.shared_host
                ranks = replace(settings.parallelism, shared_host=shared)
                self._resolved[key] = replace(settings, parallelism=ranks)
            except CallerError as error:
                self._resolved[key] = error
        found = self._resolved[key]
        if isinstance(found, CallerError):
            raise found
        return found

    def _weaker(self, one: Candidate, other: Candidate) -> bool:
        """Whether `one` has at most what `other` has, of everything, and so serves no more.

        Fewer replicas are not weaker: each has a cache of its own, so that more of them hit less.
        """
        return (
            one.machine[1:] == other.machine[1:]
            and one.replicas == other.replicas
            and one.host_bytes <= other.host_bytes
            and one.stored <= other.stored
            and self._slower(one.machine, other.machine)
        )

    def _stages_ns(
        self, one: Machine, chunks: Chunks, decoding: int, context: int
    ) -> tuple[list[int], int]:
        """Of a pass on each stage, and between two, without the host."""
        times: TimeModel = self._times(one)
        layers = [last - first for first, last in stage_layers(times.layers, one[2])]
        layer_ns = times.layer_ns(chunks, decoding, context)
        return stages_ns(times, layers, chunks, decoding, layer_ns)

    def _is_slower(self, one: Machine, other: Machine) -> bool:
        """With as many ranks and stages."""
        if one == other:
            return True
        first, second = self.settings(*one), self.settings(*other)
        if first.core.device_pages > second.core.device_pages:
            return False
        if first.hardware.reached_link_bytes_per_s > second.hardware.reached_link_bytes_per_s:
            return False
        hosts = [
            (getattr(first.engine.profile, name), getattr(second.engine.profile, name))
            for name in (each.name for each in fields(first.engine.profile))
            if name.endswith("_ns")
        ]
        passes: list[tuple[int, int]] = []
        for each in _PASSES:
            (slow, to), (fast, faster) = (self._stages_ns(of, *each) for of in (one, other))
            passes += [*zip(slow, fast, strict=True), (to, faster)]
        return all(slow >= fast for slow, fast in (*hosts, *passes))

    def pages(self, one: Candidate) -> int:
        """Pages that all replicas hold together, where host memory has what the device has."""
        settings = self.settings(*one.machine)
        host = one.host_bytes // (settings.host_page_bytes[0] * settings.page_ranks)
        device = settings.core.device_pages[0]
        return one.replicas * (host + device if self._base.exclusive else max(host, device))

    def hits(self, one: Candidate) -> int:
        """Tokens that it would hit at most: those of one cache with the pages of all replicas."""
        return 0 if self._curve is None else self._curve.hit_tokens(self.pages(one))

    def _in_time(self, one: Candidate, optimism: float = 1.0) -> float:
        """The part of the requests whose first token comes within the limit of TTFT, if prompts are
        computed in the order in which they arrive, on all replicas together as one that is so many
        times as fast, which hits as one cache and does nothing else: about as many as can keep the
        limits. Where requests have no fixed times, if each is alone. optimism: by how much work is
        less than that."""
        slo, demand = self._base.slo, self._demand
        if slo is None or slo.ttft_ns is None:
            return 1.0
        work_s = self._work_s(one) / optimism
        limit_s = slo.ttft_ns / 1e9
        if not len(demand.arrivals_s):
            return float(np.mean(work_s <= limit_s))
        order = np.argsort(demand.arrivals_s, kind="stable")
        queue_s, last_s, late = 0.0, 0.0, 0
        for at_s, own_s in zip(
            *(each[order].tolist() for each in (demand.arrivals_s, work_s)), strict=True
        ):
            queue_s = max(0.0, queue_s - (at_s - last_s))
            late += queue_s + own_s > limit_s
            queue_s, last_s = queue_s + own_s / one.replicas, at_s
        return 1 - late / demand.requests

    def _work_s(self, one: Candidate) -> Numbers:
        """Seconds that a replica computes each prompt for, if it hits what one cache with the pages
        of all replicas hits."""
        demand, settings = self._demand, self.settings(*one.machine)
        times, budget = self._times(one.machine), settings.engine.token_budget
        hits = np.zeros(demand.requests, dtype=np.int64)
        if self._curve is not None:
            lru = settings.core.eviction_policy == "lru" and not one.stored
            pages = self.pages(one) if lru else self._curve.working_set
            hits = np.minimum(hits_of(self._curve, demand.requests, pages), demand.lengths - 1)
        layers = times.layers / one.pp / budget / 1e9
        first, later = (
            times.layer_ns([(start, start + budget)], 0, 0) * layers for start in (0, _CONTEXT)
        )
        computed = demand.lengths - hits
        before = np.maximum(hits + (computed - budget) / 2, 0)  # tokens, at the middle of them
        found: Numbers = computed * (first + (later - first) / _CONTEXT * before)
        return found

    def _likely(self, one: Candidate) -> float:
        """How likely it is to serve, as odds: that prompts are in time, on a machine that has time
        for answers, too."""
        settings, demand = self.settings(*one.machine), self._demand
        busy = 0.0
        if demand.duration_s:
            times = self._times(one.machine)
            each = (demand.input_tokens + demand.output_tokens) // max(1, demand.requests)
            room = settings.core.device_pages[0] * settings.core.page_size // max(1, each)
            batch = max(1, -(-min(settings.engine.max_running, room) // one.pp))
            token_ns = times.layer_ns([], batch, batch * each) * times.layers / one.pp / batch
            work_s = float(self._work_s(one).sum()) + demand.output_tokens * token_ns / 1e9
            busy = min(1.0, work_s / one.replicas / demand.duration_s)
        return odds(self.in_time(one) * (1 - busy * busy))

    def same_hits(self, less: Candidate, more: Candidate) -> bool:
        """Whether host memory is all that differs, and adds no hits that would be seen.

        What one cache keeps, a replica that gets a part of the requests keeps, too: two uses of a
        page are no further apart there.
        """
        if replace(more, host_bytes=less.host_bytes) != less or self._curve is None:
            return False
        one, other = (replace(each, replicas=1) for each in (less, more))
        most = self.hits(other) if less.replicas == 1 else self._curve.unbounded
        return most - self.hits(one) < SAME * self._demand.input_tokens


def odds(part: float) -> float:
    return part / max(1e-6, 1 - part)


@dataclass(frozen=True, slots=True)
class Asked:
    """What may be bought, and how it is judged. hardware, tp, replicas, hosts (bytes of a replica):
    None to choose them. pp: None for one stage. most_gpus: of one candidate. today: the machine
    that there is. attain: the part of the requests that must keep the limits. draws: of the
    arrivals. budget_s: seconds, to choose the part of the trace; None without."""

    hardware: Sequence[str] | None = None
    tp: Sequence[int] | None = None
    pp: Sequence[int] | None = None
    replicas: Sequence[int] | None = None
    hosts: Sequence[int] | None = None
    most_gpus: int = MOST_GPUS
    prices: Prices | None = None
    today: Candidate | None = None
    attain: Fraction = ATTAIN
    draws: int = 1
    budget_s: float | None = None


class Offered:
    """The candidates, the cheapest first, with their costs, what is known of them without a replay,
    and by reason the machines that cannot run the model."""

    def __init__(self, base: ReplayOptions, asked: Asked, trace: Trace) -> None:
        self.trace, self.prices = trace, asked.prices or LIST_PRICES
        names = list(asked.hardware or _priced(self.prices))
        splits = _splits(asked)
        shapes = [*dict.fromkeys((tp, pp) for tp, pp, _ in splits)]
        least, self.settings = _least(Machines(base, trace, _NONE, None), names, shapes)
        self.paged = trace.paged(self.settings.core.page_size)
        page_bytes = self.settings.host_page_bytes[0] * self.settings.page_ranks
        device = self.settings.core.device_pages[0]
        self.curves: Curves | None = None
        curve: Curve | None = None
        hosts = asked.hosts or (0,)
        if trace.identity:
            each = page_bytes // self.paged.page_size
            options = CurveOptions(device_pages=device, bytes_per_token=each)
            self.curves = curves_of(trace, self.paged, options)
            curve = self.curves.lru
            if asked.hosts is None:
                most, tokens = _HOST_OF_A_GPU * least, trace.jobs.input_tokens
                sizes = ladder(curve, tokens, page_bytes, device, bool(base.exclusive))
                hosts = _hosts(sizes, most)
        speed = None if base.concurrency else base.speed or Fraction(1)
        self.demand = demand_of(trace, speed)
        self.machines = Machines(base, trace, self.demand, curve)
        stored = (False, True) if base.storage is not None else (False,)
        self.refused: dict[str, list[str]] = {}
        found = [
            Candidate(name, tp, replicas, host, with_store, pp)
            for name, tp, pp in self._that_fit(names, shapes)
            for one_tp, one_pp, replicas in splits
            if (one_tp, one_pp) == (tp, pp)
            for host in hosts
            for with_store in stored
            if host or not with_store
        ]
        if asked.today is not None and asked.today not in found:
            self.machines.settings(*asked.today.machine)
            found.append(asked.today)
        kept = base.storage_size or (0 if curve is None else curve.unique * page_bytes)
        self.costs = costs = {one: cost_of(one, self.prices, kept) for one in found}
        # of several at one cost, the one that is likeliest to serve comes first
        likely = self.machines.likely
        self.candidates = sorted(found, key=lambda one: (costs[one], -likely(one), one.label))
        self.same_as = self._same_hits()

    def _that_fit(
        self, names: Sequence[str], shapes: Sequence[tuple[int, int]]
    ) -> Sequence[Machine]:
        """The machines that can serve the trace; the reasons of others are kept."""
        found = []
        for name in names:
            for tp, pp in shapes:
                try:
                    self.machines.settings(name, tp, pp)
                    found.append((name, tp, pp))
                except CallerError as error:
                    stages = f" (pp {pp})" if pp > 1 else ""
                    self.refused.setdefault(str(error), []).append(f"{tp * pp} x {name}{stages}")
        return found

    def _same_hits(self) -> dict[int, int]:
        """Those whose host memory adds no hits to a cheaper one that is the same otherwise, by that
        one: they are not worth a replay."""
        known, found = self.candidates, dict[int, int]()
        groups: dict[Candidate, list[int]] = {}
        for place, one in enumerate(known):
            groups.setdefault(replace(one, host_bytes=0), []).append(place)
        for places in groups.values():
            ordered = sorted(places, key=lambda place: known[place].host_bytes)
            for at, more in enumerate(ordered):
                for less in ordered[:at]:
                    if less not in found and self.machines.same_hits(known[less], known[more]):
                        found[more] = less
                        break
        return found


_NONE = Demand(0, 0, 0, 0.0, np.zeros(0), np.zeros(0))


def _priced(prices: Prices) -> list[str]:
    """The accelerators with a price of their own; with a price of any, those of the list."""
    own = [name for name in prices.per_hour if name not in _NOT_HARDWARE]
    return sorted(own or [one for one in LIST_PRICES.per_hour if one not in _NOT_HARDWARE])


def _splits(asked: Asked) -> list[tuple[int, int, int]]:
    """tp, pp and replicas."""
    most, stages = asked.most_gpus, asked.pp or (1,)
    shapes = [
        (tp, pp) for pp in stages for tp in asked.tp or [tp for tp in _RANKS if tp * pp <= most]
    ]
    if not shapes:
        raise CallerError(
            f"--pp: expected stages for the {most} GPUs of a machine (--most-gpus), found "
            f"{min(stages)}, each on one at least; use fewer, or raise --most-gpus"
        )
    return [
        (tp, pp, count)
        for tp, pp in shapes
        for count in asked.replicas or range(1, max(1, most // (tp * pp)) + 1)
    ]


def _least(
    machines: Machines, hardware: Sequence[str], shapes: Sequence[tuple[int, int]]
) -> tuple[int, ReplayConfig]:
    """The machine with the least device memory that can serve the trace: its ranks and settings.
    shapes: tp and pp. Raises CallerError if none can."""
    found: list[tuple[int, int, str, int, int]] = []
    refused: CallerError | None = None
    for name in hardware:
        for tp, pp in shapes:
            try:
                pages = machines.settings(name, tp, pp).core.device_pages[0]
                found.append((pages, tp * pp, name, tp, pp))
            except CallerError as error:
                refused = error
    if not found:
        raise refused or CallerError("--tp: expected at least one number of ranks, found none")
    _, ranks, name, tp, pp = min(found)
    return ranks, machines.settings(name, tp, pp)


def ladder(
    curve: Curve,
    input_tokens: int,
    page_bytes: int,
    device_pages: int,
    exclusive: bool = False,
) -> tuple[int, ...]:
    """Sizes of host memory in powers of two, ascending, from what adds hits to what brings nearly
    all; none where the device alone does. page_bytes: of all ranks. exclusive: whether host memory
    adds to the device; otherwise less of it than the device has holds nothing more."""
    if curve.unbounded - curve.hit_tokens(device_pages) < LITTLE * input_tokens:
        return ()
    top = max(1, curve.pages_for(NEARLY_ALL * curve.unbounded))
    low = curve.pages_for(curve.hit_tokens(device_pages) + LITTLE * input_tokens)
    if exclusive:
        low, top = max(0, low - device_pages), max(1, top - device_pages)
    low = max(1 if exclusive else device_pages, min(low or top, top))
    known = [scale << power for scale in (10**6, 10**9, 10**12, 10**15) for power in range(10)]
    last = len(known) - 1
    high, first = (
        next((place for place, size in enumerate(known) if size >= pages * page_bytes), last)
        for pages in (top, low)
    )
    places = range(first, max(first, high) + 1)
    step = max(1.0, (len(places) - 1) / (MOST_SIZES - 1))
    chosen = {places[round(index * step)] for index in range(min(MOST_SIZES, len(places)))}
    return tuple(known[place] for place in sorted(chosen))


def _hosts(steps: Sequence[int], most: int) -> tuple[int, ...]:
    """None, and sizes of the ladder up to what a server has for so many ranks."""
    sizes = [size for size in steps if size <= most]
    if steps and len(sizes) < _HOSTS:
        sizes = sorted({*sizes, most // 4, most // 2, most})
    return (0, *sizes[-_HOSTS:])
