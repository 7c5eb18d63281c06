"""Replays of rows, reduced to samples: the passes that differ, the work in each, and how much each
weighs in the figures.

In a closed loop without pauses the composition of passes hardly depends on their durations. So a
replay is recorded once, and a figure under other constants is a sum over its passes:

    mean TTFT    = time before the first pass
                 + sum of duration x (part of the requests that wait for their first token in it)
    mean TPOT    = sum of duration x (sum over what decodes in it of 1 / (outputs - 1)) / requests
    makespan     = sum of durations

A duration is the time from the launch of a pass until the next may be launched, so the host's time
between two passes is in it. Where no request was there, the time until one came is apart. Decode
steps are computed at every 64th step and interpolated between. Passes that are nearly alike become
one, with their weights added.

With the defaults rows that only differ in accelerator, ranks or precision share a replay, unless
the pool of cached tokens is too small for all requests.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import sim.engine_profiles as engine_profiles
import sim.fitted as fitted
from hicache.core.config import Config
from hicache.core.types import Key
from sim.engine.sequence import RequestResult
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor, known_model
from sim.options import WorldOptions, engine_options
from sim.physics import Kernel, defaults, family
from sim.times.base import Chunks, TimeModel
from sim.times.roofline import Roofline
from sim.workload import Job
from sim.world import World

from .rows import THROUGHPUT, Figure, Load, Row, Server, figures, server_of, usable

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
HOST = (
    *("step_host_ns", "step_gap_ns", "per_sequence_host_ns", "prefill_host_ns"),
    *("request_host_ns", "launch_ns"),
)
_WORK = ("chunks", "tokens", "pairs", "reads", "context", "decoding")  # of a pass
_WAITS = ("poll_passes", "wait_passes", "wait_permille")
_PAGE_TOKENS = 64
_PAGES = 1 << 24  # of one prompt
# Pages are taken ahead for so many tokens where the pool may be full; else for the whole output.
_GROWTH_TOKENS = 64
_GROWTH_OF_LONG = 32  # an output of so many stretches is long: they are this part of it
_STEPS = 64
# Passes whose amounts differ by less are one.
_ALIKE = {"tokens": 1.1, "decoding": 1.1, "context": 1.35, "pairs": 1.35}
_NS = 1e-9


class Labels(NamedTuple):
    """Of one run. version: with the engine's name before it."""

    family: str
    hardware: str
    engine: str
    version: str
    model: str


@dataclass(frozen=True)
class Target:
    """One published figure. measured: in seconds; a rate is turned into the run's seconds.

    weights   seconds of the figure for each second of each pass. rest: seconds that belong to no
              pass. requests: seconds of the figure for each second of the request's own host time.
    """

    what: str
    measured: float
    weights: Floats
    rest: float
    requests: float


@dataclass(frozen=True)
class Sample:
    """One row. Columns have one entry a pass; `work` has one row for each kind of kernel in each
    pass: pass, number of the kind, launches, compute_ns, moved_ns, and 1 inside the layers. starts:
    kernels that the host launches one by one in a pass, which then takes at least so long."""

    row: str
    group: str
    labels: Labels
    kinds: tuple[str, ...]
    kernels: Mapping[str, Kernel]
    work: Floats
    sequences: Floats
    prompts: Floats
    starts: Floats
    host: Mapping[str, int]
    overlap: bool
    device: float
    figures: tuple[Target, ...]


# -- replays


@dataclass(frozen=True)
class _Prompts:
    """Prompts that share nothing."""

    page_size: int
    jobs: Sequence[Job]

    def key(self, job: Job, length: int) -> Key:
        pages = np.arange(length // self.page_size, dtype=np.int64)
        return Key.from_page_ids(job.index * _PAGES + pages)


class Recorder:
    """A time model that notes every pass. It computes decode steps at every 64th token of a
    sequence's context, and interpolates between. now_ns: the time of the run; set before it
    begins."""

    def __init__(self, model: TimeModel) -> None:
        self.layers, self.label = model.layers, model.label
        self._model = model
        self.now_ns: Callable[[], int] = lambda: 0
        self.columns = {name: array("q") for name in ("at_ns", *_WORK, "ns")}
        self._decoding = self._low = self._high = -1
        self._low_ns = self._rise_ns = 0

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        layer_ns = self._model.layer_ns(chunks, decoding, context)
        self._note(chunks, decoding, context, self.layers * layer_ns)
        return layer_ns

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        """Belongs to the pass whose layers were asked for last."""
        overhead_ns = self._model.overhead_ns(chunks, decoding)
        self.columns["ns"][-1] += overhead_ns
        return overhead_ns

    def step_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        """Of a pass that only decodes."""
        if decoding != self._decoding or not self._low <= context < self._high:
            stretch = max(1, _STEPS * decoding)
            self._decoding = decoding
            self._low = context // stretch * stretch
            self._high = self._low + stretch
            self._low_ns = self._model.step_ns((), decoding, max(decoding, self._low))
            self._rise_ns = self._model.step_ns((), decoding, self._high) - self._low_ns
        past = self._rise_ns * (context - self._low) // (self._high - self._low)
        self._note(chunks, decoding, context, self._low_ns + past)
        return self._low_ns + past

    def _note(self, chunks: Chunks, decoding: int, context: int, ns: int) -> None:
        tokens = sum(end - start for start, end in chunks)
        pairs = sum((end - start) * (start + end + 1) // 2 for start, end in chunks)
        reads = sum(end for _, end in chunks)
        values = (self.now_ns(), len(chunks), tokens, pairs, reads, context, decoding, ns)
        for column, value in zip(self.columns.values(), values, strict=True):
            column.append(value)


@dataclass(frozen=True)
class Passes:
    """The passes of a replay in order, a column for each property.

    work      by name: chunks (of prompts), tokens (new ones in them), pairs (of queries and keys in
              them, under the causal mask), reads (rows that they attend to), context (tokens that
              decoding sequences attend to, together), decoding (these sequences).
    took_ns   on device and host.
    weights   by figure (ttft, tpot, itl, makespan), its seconds for each second of the pass. idle:
              its seconds in which nothing ran, after the first pass began.
    before_s  seconds of mean TTFT before the first pass.
    """

    work: dict[str, Integers]
    took_ns: Integers
    weights: dict[str, Floats]
    idle: dict[str, float]
    before_s: float


def roofline(server: Server, given: tuple[Factor, ...]) -> Roofline:
    """The roofline of this server with these factors on its constants."""
    machine, generation = server.hardware, family(server.hardware)
    constants = fitted.roofline(
        defaults(generation), generation, machine.name, server.engine, server.model.name, given
    )
    return Roofline(server.model, machine, server.parallelism, server.engine, constants, "fit")


def record(
    server: Server, load: Load, given: tuple[Factor, ...]
) -> tuple[tuple[RequestResult, ...], Passes]:
    """The requests of a replay with these factors, and all of its passes."""
    recorder = Recorder(roofline(server, given))
    pool = server.tokens_in_pool(load.mean_length)
    longest = max(job.output_length for job in load.jobs)
    tight = load.concurrency * load.longest > pool
    budget = max(_PAGE_TOKENS, load.pass_tokens or server.token_budget)
    engine = replace(
        engine_options(server.engine, server.parallelism.attention_dp, budget, server.max_running),
        growth_tokens=max(_GROWTH_TOKENS, longest // _GROWTH_OF_LONG) if tight else load.longest,
        **{name: getattr(server.flags, name) for name in _WAITS},
    )
    pages = (max(1, pool // _PAGE_TOKENS),)
    world = World(
        _Prompts(_PAGE_TOKENS, load.jobs),
        Config(page_size=_PAGE_TOKENS, device_pages=pages, host_pages=(0,)),
        server.model,
        server.hardware,
        engine=engine,
        options=WorldOptions(parallelism=server.parallelism, concurrency=load.concurrency),
        costs=recorder,
    )
    recorder.now_ns = lambda: world.clock.now_ns
    requests = world.run().requests
    return requests, _passes(recorder, requests, server.engine)


def _passes(
    recorder: Recorder, requests: tuple[RequestResult, ...], engine: EngineProfile
) -> Passes:
    columns = {name: np.asarray(column) for name, column in recorder.columns.items()}
    at_ns, ns = columns.pop("at_ns"), columns.pop("ns")
    # nanoseconds of each pass on device and host, until the next one may be launched
    device = ns * (engine.device_permille / 1000)
    host = engine.per_sequence_host_ns * (columns["decoding"] + columns["chunks"])
    host = host + engine.step_host_ns + engine.prefill_host_ns * columns["chunks"]
    whole = np.maximum(device, host) if engine.overlap else device + host
    busy = np.rint(whole + engine.step_gap_ns).astype(np.int64)
    # steps that were computed at one instant run one after another
    before = np.cumsum(busy) - busy
    new = np.append(True, at_ns[1:] != at_ns[:-1])
    since = np.maximum.accumulate(np.where(new, np.arange(len(at_ns)), 0))
    begin = at_ns + before - before[since]
    last = max((request.finish_ns for request in requests), default=0)
    end = np.append(begin[1:], max(last, int(begin[-1] + ns[-1])))
    done = np.minimum(begin + busy, end)
    arrival, first, finish = (
        np.array([getattr(one, name) for one in requests], dtype=np.float64)
        for name in ("arrival_ns", "first_token_ns", "finish_ns")
    )
    gaps = np.array([one.output_length - 1 for one in requests], dtype=np.float64)
    some = gaps > 0
    share = np.where(some, 1 / np.maximum(gaps, 1), 0.0) / max(1, int(some.sum()))
    even = np.full(len(requests), 1 / max(1, len(requests)))
    token = np.where(some, 1 / max(1.0, gaps.sum()), 0.0)
    inside = {
        "ttft": (arrival, first, even),
        "tpot": (first, finish, share),
        "itl": (first, finish, token),
    }
    took = np.maximum(done - begin, 1)
    weights = {name: _seconds(begin, done, *each) / took * 1e9 for name, each in inside.items()}
    idle = {name: float(_seconds(done, end, *each).sum()) for name, each in inside.items()}
    return Passes(
        columns,
        took,
        weights | {"makespan": np.ones(len(begin))},
        idle | {"makespan": float((end - done).sum()) / 1e9},
        float(np.maximum(begin[0] - arrival, 0).mean()) / 1e9,
    )


def _seconds(begin: Integers, end: Integers, since: Floats, until: Floats, share: Floats) -> Floats:
    """Of each interval, the sum over the requests of their share x the seconds of it between
    `since` and `until`."""
    inside = _integral(end, since, share) - _integral(begin, since, share)
    inside -= _integral(end, until, share) - _integral(begin, until, share)
    return inside / 1e9


def _integral(at: Integers, since: Floats, share: Floats) -> Floats:
    """Sum over the requests of share x max(0, at - since)."""
    order = np.argsort(since, kind="stable")
    starts, shares = since[order], share[order]
    total = np.append(0.0, np.cumsum(shares))
    moments = np.append(0.0, np.cumsum(shares * starts))
    place = np.searchsorted(starts, at, side="right")
    summed: Floats = at * total[place] - moments[place]
    return summed


# -- samples


def recorded(rows: Iterable[Row], given: tuple[Factor, ...], jobs: int) -> list[Sample]:
    """The samples of the rows that can be replayed and have a figure that passes explain, by id,
    from replays with these factors. With some each row has a replay of its own, since its requests
    may come in other bunches. jobs: processes."""
    shared: dict[Hashable, list[Row]] = {}
    for row, server, load in _prepared(rows, given):
        if figures(row):
            shared.setdefault(row.id if given else _key(server, load), []).append(row)
    with ProcessPoolExecutor(jobs) as pool:
        groups = list(pool.map(partial(_samples, given), shared.values()))
    return sorted((one for group in groups for one in group), key=lambda one: one.row)


def _samples(given: tuple[Factor, ...], rows: Sequence[Row]) -> list[Sample]:
    """Of rows that share a replay. given: the factors that it is run with."""
    ready = list(_prepared(rows, given))
    _, server, load = ready[0]
    passes = record(server, load, given)[1]
    before_ns = server.engine.request_host_ns
    return [_sample(row, server, load, passes, before_ns) for row, server, load in ready]


def _prepared(rows: Iterable[Row], given: tuple[Factor, ...]) -> Iterator[tuple[Row, Server, Load]]:
    """The rows that can be replayed, with their servers and requests."""
    for row in rows:
        load = usable(row)
        if load is not None:
            yield row, server_of(row, load.concurrency, given), load


def _key(server: Server, load: Load) -> Hashable:
    """What the composition of passes depends on."""
    profile = server.engine
    pool = server.tokens_in_pool(load.mean_length)
    of_server = server.token_budget, server.max_running, server.flags
    of_engine = profile.batching, profile.chunked, profile.lookahead, profile.request_host_ns
    tight = pool if load.concurrency * load.longest > pool else -1
    return load, of_server, of_engine, server.parallelism.attention_dp, tight


def _sample(row: Row, server: Server, load: Load, passes: Passes, before_ns: int) -> Sample:
    """before_ns: the host's time before a request in the replay."""
    profile, model = server.engine, roofline(server, ())
    cluster, count = _clusters(passes.work)
    took = passes.took_ns.astype(np.float64)
    times = np.bincount(cluster, took, count)  # means by time
    columns = [np.bincount(cluster, took * passes.work[name], count) / times for name in _WORK]
    kinds: dict[str, int] = {}
    work, starts = [], []
    for number in range(count):
        passed = _pass(*(column[number] for column in columns))
        for inside, works in zip((1, 0), model.works(*passed), strict=True):
            for each in works:
                kind = kinds.setdefault(each.kind, len(kinds))
                amounts = each.launches, each.compute_ns, each.moved_ns, inside
                work.append((number, kind, *amounts))
        starts.append(model.starts(*passed))
    chunks, *_, decoding = columns
    machine, name = server.hardware, known_model(server.model.name)
    before = engine_profiles.get(profile.label)
    return Sample(
        row.id,
        row.group,
        Labels(family(machine), machine.name, profile.name, profile.label, name),
        tuple(kinds),
        {kind: model.constants.kernels[kind] for kind in kinds},
        np.array(work, dtype=np.float64),
        decoding + chunks,
        chunks,
        np.array(starts, dtype=np.float64),
        {name: getattr(before, name) for name in HOST},
        profile.overlap,
        profile.device_permille / 1000,
        tuple(_target(one, passes, before_ns, load, cluster, count) for one in figures(row)),
    )


def _target(
    figure: Figure, passes: Passes, before_ns: int, load: Load, cluster: Integers, count: int
) -> Target:
    what, measured = figure.what, figure.value
    if figure.quantity == THROUGHPUT:
        what, measured = "makespan", sum(job.output_length for job in load.jobs) / figure.value
    rest = passes.idle[what]
    if what == "ttft":
        rest += passes.before_s - before_ns * _NS
    weights: Floats = np.bincount(cluster, passes.weights[what], count).astype(np.float64)
    return Target(figure.quantity, measured, weights, rest, what == "ttft")


def _clusters(work: dict[str, Integers]) -> tuple[Integers, int]:
    """For each pass, the number of the passes that it is nearly like."""
    columns = []
    for name, ratio in _ALIKE.items():  # numbers of geometric intervals; -1 for 0
        logs = np.log(np.maximum(work[name], 1)) / np.log(ratio)
        columns.append(np.where(work[name] > 0, np.round(logs), -1).astype(np.int64))
    _, cluster = np.unique(
        np.stack([*columns, work["chunks"]], axis=1), axis=0, return_inverse=True
    )
    flat = cluster.reshape(-1).astype(np.int64)
    return flat, int(flat.max()) + 1


def _pass(
    chunks: float, tokens: float, pairs: float, reads: float, context: float, decoding: float
) -> tuple[list[tuple[int, int]], int, int]:
    """A pass with these figures, of equal chunks."""
    number, sequences = round(chunks), round(decoding)
    equal = []
    if number:
        length = max(1, round(tokens / number))
        start = max(0, round(pairs / number / length - (length + 1) / 2))
        equal = [(start, start + length)] * number
    return equal, sequences, max(sequences, round(context * sequences / max(decoding, 1e-9)))
