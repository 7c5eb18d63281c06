"""What can be bought: accelerators, how the model is split over them, host memory and storage; what
each costs an hour, which of two is the stronger, and about what each can do.

    split      `tp` ranks share each of `pp` stages, and `replicas` of the model serve side by side
    host       bytes of host memory of each replica
    stored     whether the store of --storage is behind it

Does not search (see trials) or replay (see decision).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from hicache.models.base import stage_layers
from sim.times.base import Chunks, TimeModel, stages_ns

from ..curves.distances import Curve
from ..deciding.prices import Prices
from ..formats.base import Trace
from ..replaying.config import ReplayConfig as Settings
from ..replaying.options import ReplayOptions
from ..reporting.amounts import gigabytes
from ..sweeping.grid import Point, Value
from .plan import OF_HOST, bare, resolved

MOST_GPUS = 8
SAME = 0.001  # of all prompt tokens: host memory that adds fewer hits changes nothing
SURE = 1.25  # times the time that there is: work that takes longer is never served
_GB = 1e9
_ROUNDED = 1024  # tokens
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


Machine = tuple[str, int, int]  # accelerator, tensor ranks, stages


@dataclass(frozen=True, slots=True)
class Candidate:
    """See the module. host_bytes: of one replica. machine: what a replica runs on, as `Machines`
    knows it."""

    hardware: str
    tp: int
    replicas: int
    host_bytes: int = 0
    stored: bool = False
    pp: int = 1

    @property
    def gpus(self) -> int:
        return self.ranks * self.replicas

    @property
    def ranks(self) -> int:
        """Accelerators of a replica."""
        return self.tp * self.pp

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


_OF_A_FLEET = ("router",)


@dataclass(frozen=True, slots=True)
class Demand:
    """What the trace asks for. duration_s: from the first arrival to the last one, at the load that
    is played; 0 where requests wait for others, so that there is no fixed time. context: tokens of
    a prompt that a prompt token attends to, on average. prompts: how many requests there are of
    each pair of tokens that an unbounded cache hits, and of the prompt; rounded in favour of being
    fast.
    """

    requests: int
    input_tokens: int
    output_tokens: int
    duration_s: float
    context: int
    prompts: Mapping[tuple[int, int], int] = field(default_factory=dict)

    @property
    def requests_per_s(self) -> float:
        return self.requests / self.duration_s if self.duration_s else 0.0


def demand_of(trace: Trace, curve: Curve | None, speed: Fraction | None) -> Demand:
    """trace: with its load. curve: of it; None for a trace of lengths only. speed: at which its
    times are played; None if they are not read."""
    jobs = trace.jobs
    free = jobs.afters < 0
    span_ns = int(np.ptp(jobs.arrivals_ns[free])) if free.any() else 0
    fixed = bool(free.all()) and jobs.sender is None and speed is not None
    lengths = jobs.input_lengths.astype(np.int64)
    total = int(lengths.sum())
    hits = np.zeros(len(jobs), dtype=np.int64)
    if curve is not None:
        np.add.at(hits, curve.runs.request, curve.runs.pages * curve.page_size - curve.short)
        hits = np.minimum(hits, (lengths - 1) // curve.page_size * curve.page_size)
    lengths = np.maximum(lengths // _ROUNDED, 1) * _ROUNDED
    hits = np.minimum(-(-hits // _ROUNDED) * _ROUNDED, lengths - 1)
    pairs, counts = np.unique(np.stack((hits, lengths)), axis=1, return_counts=True)
    prompts = {
        (hit, length): int(n)
        for hit, length, n in zip(*pairs.tolist(), counts.tolist(), strict=True)
    }
    return Demand(
        len(jobs),
        total,
        int(jobs.output_lengths.astype(np.int64).sum()),
        span_ns / 1e9 / float(speed or 1) if fixed else 0.0,
        int((lengths * lengths).sum() // (2 * total)) if total else 0,
        prompts,
    )


class Machines:
    """The machines that one replica may be, each resolved once.

    curve: None for a trace of lengths only.
    """

    def __init__(
        self, base: ReplayOptions, trace: Trace, demand: Demand, curve: Curve | None
    ) -> None:
        self._base, self._trace = base, trace
        self._demand, self._curve = demand, curve
        self._resolved: dict[Machine, Settings | CallerError] = {}
        self.weaker = cache(self._weaker)
        self.times = cache(self._times_of)
        self._slower = cache(self._is_slower)
        self.can_do = cache(self._can_do)
        self.alone = cache(self._alone)

    def settings(self, hardware: str, tp: int, pp: int) -> Settings:
        """Of a replica without host memory. Raises CallerError for one that cannot serve it."""
        key = hardware, tp, pp
        if key not in self._resolved:
            point = Candidate(hardware, tp, 1, pp=pp).point(self._base)
            try:
                self._resolved[key] = resolved(point.options, self._base, self._trace)[0]
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

    def _times_of(self, hardware: str, tp: int, pp: int) -> TimeModel:
        return self.settings(hardware, tp, pp).time_model

    def _stages_ns(
        self, one: Machine, chunks: Chunks, decoding: int, context: int
    ) -> tuple[list[int], int]:
        """Of a pass on each stage, and between two, without the host."""
        times = self.times(*one)
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
        host = one.host_bytes // self.page_bytes(one)
        device = settings.core.device_pages[0]
        return one.replicas * (host + device if self._base.exclusive else max(host, device))

    def page_bytes(self, one: Candidate) -> int:
        settings = self.settings(*one.machine)
        return settings.host_page_bytes[0] * settings.page_ranks

    def hits(self, one: Candidate) -> int:
        """Tokens that it would hit at most: those of one cache with the pages of all replicas."""
        return 0 if self._curve is None else self._curve.hit_tokens(self.pages(one))

    def _can_do(self, one: Candidate) -> float:
        """About how many times the demand it serves; 0 if that cannot be told."""
        prefill_s, decode_s = self._work_s(one, self.hits(one), self._demand.context)
        return self._times(one, prefill_s + decode_s)

    def at_most(self, one: Candidate) -> float:
        """What it serves with every hit that there is, prompts that attend to nothing, and decoding
        that costs nothing beside them or they nothing beside decoding: no less than it can do."""
        hits = 0 if self._curve is None else self._curve.unbounded
        return self._times(one, max(self._work_s(one, hits, 0)))

    def likely(self, one: Candidate) -> float:
        """How likely it is to serve, as odds: that a request alone keeps its limits, on a machine
        that has time for it."""
        times = self.can_do(one)
        busy = min(1.0, 1 / times) if times else 0.0
        kept = self.alone(*one.machine) * (1 - busy * busy)
        return kept / max(1e-6, 1 - kept)

    def _alone(self, hardware: str, tp: int, pp: int) -> float:
        """The part of the requests whose first token would come in time if each were alone on the
        machine, with every hit that there is: no fewer than keep the limit."""
        slo, prompts = self._base.slo, self._demand.prompts
        if slo is None or slo.ttft_ns is None:
            return 1.0
        machine = hardware, tp, pp
        budget = self.settings(*machine).engine.token_budget
        kept = 0
        for (hit, length), count in prompts.items():
            left_ns = [0] * pp  # when the chunk before left each stage
            for start in range(hit, length, budget):
                chunk = [(start, min(start + budget, length))]
                passes, send_ns = self._stages_ns(machine, chunk, 0, 0)
                there_ns = 0
                for stage, pass_ns in enumerate(passes):
                    left_ns[stage] = max(there_ns, left_ns[stage]) + pass_ns
                    there_ns = left_ns[stage] + send_ns
                if left_ns[-1] > slo.ttft_ns:
                    break
            else:
                kept += count
        return kept / max(1, sum(prompts.values()))

    def _times(self, one: Candidate, work_s: float) -> float:
        if not self._demand.duration_s or not work_s:
            return 0.0
        return one.replicas * self._demand.duration_s / work_s

    def _work_s(self, one: Candidate, hits: int, context: int) -> tuple[float, float]:
        """Seconds of prefill and of decoding on each stage of one replica that serves everything,
        if all stages are always busy: with requests in as many micro-batches."""
        settings, demand = self.settings(*one.machine), self._demand
        model, budget = self.times(*one.machine), settings.engine.token_budget
        layers = model.layers / one.pp
        computed = max(0, demand.input_tokens - hits)
        chunk = model.layer_ns([(context, context + budget)], 0, 0) * layers / budget
        each = (demand.input_tokens + demand.output_tokens) // max(1, demand.requests)
        room = settings.core.device_pages[0] * settings.core.page_size // max(1, each)
        batch = max(1, -(-min(settings.engine.max_running, room) // one.pp))
        attended = batch * each if context else 0
        token = model.layer_ns([], batch, attended) * layers / batch
        return computed * chunk / 1e9, demand.output_tokens * token / 1e9

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


def amounts(one: Candidate, storage_bytes: int) -> dict[str, float]:
    """What it has of each thing with a price but accelerators."""
    return {
        "host": one.host_bytes * one.replicas / _GB,
        "storage": storage_bytes / _GB if one.stored else 0.0,
    }


def cost_of(one: Candidate, prices: Prices, storage_bytes: int) -> float:
    """For an hour. Raises CallerError for an accelerator without a price."""
    each = prices.of_gpu(one.hardware)
    if each is None:
        raise CallerError(
            f"--price: expected a price of {one.hardware}, found none; add {one.hardware}=2.5/h, "
            "or gpu=2.5/h for any accelerator"
        )
    return one.gpus * each + prices.cost_per_hour(amounts(one, storage_bytes))


def every(
    hardware: Sequence[str],
    splits: Iterable[tuple[int, int, int]],
    hosts: Sequence[int],
    stored: Sequence[bool],
    machines: Machines,
) -> tuple[list[Candidate], Mapping[str, list[str]]]:
    """All combinations that can serve the trace, and why the others cannot: by reason, the
    machines. splits: tp, pp and replicas."""
    found: list[Candidate] = []
    refused: dict[str, list[str]] = {}
    splits = list(splits)
    for name in hardware:
        for tp, pp in dict.fromkeys((tp, pp) for tp, pp, _ in splits):
            try:
                machines.settings(name, tp, pp)
            except CallerError as error:
                stages = f" (pp {pp})" if pp > 1 else ""
                refused.setdefault(str(error), []).append(f"{tp * pp} x {name}{stages}")
                continue
            found += [
                Candidate(name, tp, replicas, host, with_store, pp)
                for *ranks, replicas in splits
                if ranks == [tp, pp]
                for host in hosts
                for with_store in stored
                if host or not with_store
            ]
    return found, refused
