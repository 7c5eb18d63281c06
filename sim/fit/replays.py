"""Replays of runs, reduced to samples: the passes that differ, the work in each, and how much each
weighs in the figures.

In a closed loop without pauses the composition of passes hardly depends on their durations. So a
replay is recorded once, and a figure under other constants is a sum over its passes:

    mean TTFT    = time before the first pass
                 + sum of duration x (part of the requests that wait for their first token in it)
    mean TPOT    = sum of duration x (sum over what decodes in it of 1 / (outputs - 1)) / requests
    makespan     = sum of durations

A duration is the time from the launch of a pass until the next may be launched, so the host's time
between two passes is in it. Where no request was there, the time until one came is apart. Passes
that are nearly alike become one, with their weights added.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import sim.fitted as fitted
from hicache.core.config import Config
from hicache.core.types import Key
from sim.engine.sequence import RequestResult
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor, known_model
from sim.options import WorldOptions, engine_options
from sim.physics import Kernel, family
from sim.times.base import Chunks
from sim.times.roofline import Roofline
from sim.workload import Job
from sim.world import World

from .rows import THROUGHPUT, TTFT, Run

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]
HOST = (
    *("step_host_ns", "step_gap_ns", "per_sequence_host_ns", "prefill_host_ns"),
    *("request_host_ns", "launch_ns"),
)
_WORK = ("chunks", "tokens", "pairs", "context", "decoding")  # of a pass
_PAGE_TOKENS = 64
_PAGES = 1 << 24  # of one prompt
# Pages are taken ahead for so many tokens where the pool may be full; else for the whole output.
_GROWTH_TOKENS = 64
_GROWTH_OF_LONG = 32  # an output of so many stretches is long: they are this part of it
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


class Target(NamedTuple):
    """One published figure. measured: in seconds; a rate is turned into the run's seconds.

    weights: seconds of the figure for each second of each pass. rest: seconds that belong to no
    pass. Each second of the request's own host time is one of TTFT.
    """

    what: str
    measured: float
    weights: Floats
    rest: float


@dataclass(frozen=True)
class Sample:
    """One run. Columns have one entry a pass; `work` has one row for each kind of kernel in each
    pass: pass, number of the kind, launches, compute_ns, moved_ns, and 1 inside the layers. starts:
    kernels that the host launches one by one in a pass, which then takes at least so long.
    at_once: requests that run at once, on average. queueing: share of TTFT spent in the queue."""

    run: Run
    labels: Labels
    kernels: Mapping[str, Kernel]
    work: Floats
    sequences: Floats
    prompts: Floats
    starts: Floats
    at_once: float
    queueing: float
    figures: tuple[Target, ...]


@dataclass(frozen=True)
class _Prompts:
    """Prompts that share nothing."""

    page_size: int
    jobs: Sequence[Job]

    def key(self, job: Job, length: int) -> Key:
        pages = np.arange(length // self.page_size, dtype=np.int64)
        return Key.from_page_ids(job.index * _PAGES + pages)


class Recorder(Roofline):
    """A time model that notes every pass. now_ns: the time of the run; set before it begins."""

    def __init__(self, run: Run, factors: tuple[Factor, ...]) -> None:
        """factors: on its constants."""
        kernels = fitted.roofline(run.hardware, run.engine, run.model.name, factors)
        super().__init__(run.model, run.hardware, run.parallelism, run.engine, kernels)
        self.now_ns: Callable[[], int] = lambda: 0
        self.columns = {name: array("q") for name in ("at_ns", *_WORK, "ns")}

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        layer_ns = super().layer_ns(chunks, decoding, context)
        tokens = sum(end - start for start, end in chunks)
        pairs = sum((end - start) * (start + end + 1) // 2 for start, end in chunks)
        values = (self.now_ns(), len(chunks), tokens, pairs, context, decoding)
        for column, value in zip(
            self.columns.values(), (*values, self.layers * layer_ns), strict=True
        ):
            column.append(value)
        return layer_ns

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        """Belongs to the pass whose layers were asked for last."""
        overhead_ns = super().overhead_ns(chunks, decoding)
        self.columns["ns"][-1] += overhead_ns
        return overhead_ns


def replay(
    run: Run, factors: tuple[Factor, ...]
) -> tuple[tuple[RequestResult, ...], Recorder, EngineProfile]:
    """The requests of a replay with these factors, all of its passes, and the engine."""
    profile = fitted.engine(run.engine, run.hardware.name, run.model.name, factors)
    recorder = Recorder(run, factors)
    longest = max(job.input_length + job.output_length for job in run.jobs)
    growth = longest
    if run.concurrency * longest > run.pool_tokens:
        outputs = max(job.output_length for job in run.jobs)
        growth = max(_GROWTH_TOKENS, outputs // _GROWTH_OF_LONG)
    limits = run.parallelism.attention_dp, run.token_budget, run.max_running
    engine = replace(engine_options(profile, *limits), growth_tokens=growth)
    pages = (max(1, run.pool_tokens // _PAGE_TOKENS),)
    world = World(
        _Prompts(_PAGE_TOKENS, run.jobs),
        Config(page_size=_PAGE_TOKENS, device_pages=pages, host_pages=(0,)),
        run.model,
        run.hardware,
        engine=engine,
        options=WorldOptions(parallelism=run.parallelism, concurrency=run.concurrency),
        costs=recorder,
    )
    recorder.now_ns = lambda: world.clock.now_ns
    return world.run().requests, recorder, profile


def recorded(runs: Sequence[Run], factors: tuple[Factor, ...], jobs: int) -> list[Sample]:
    """Their samples, from replays with these factors. jobs: processes."""
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(partial(_sample, factors), runs))


def _sample(factors: tuple[Factor, ...], run: Run) -> Sample:
    requests, recorder, engine = replay(run, factors)
    passes = {name: np.asarray(column) for name, column in recorder.columns.items()}
    begin, done, end = _times(passes, requests, engine)
    took = np.maximum(done - begin, 1).astype(np.float64)
    cluster, count = _clusters(passes)
    figures = []
    for what, value in run.figures.items():
        if what == THROUGHPUT:
            value = sum(job.output_length for job in run.jobs) / value
            weights, rest = np.ones(len(begin)), float((end - done).sum()) * _NS
        else:
            until = _seconds(what, requests)
            weights = (until(done) - until(begin)) / took / _NS
            rest = float((until(end) - until(done)).sum())
        if what == TTFT:
            waited = fmean(max(0, begin[0] - request.arrival_ns) for request in requests)
            rest += (waited - engine.request_host_ns) * _NS
        summed = np.bincount(cluster, weights, count).astype(np.float64)
        figures.append(Target(what, value, summed, rest))
    times = np.bincount(cluster, took, count)  # means by time
    columns = [np.bincount(cluster, took * passes[name], count) / times for name in _WORK]
    model = Recorder(run, ())
    kinds: dict[str, int] = {}
    work, starts = [], []
    for number in range(count):
        passed = _pass(*(column[number] for column in columns))
        for inside, works in zip((1, 0), model.works(*passed), strict=True):
            for kind, *amounts in works:
                work.append((number, kinds.setdefault(kind, len(kinds)), *amounts, inside))
        starts.append(model.starts(*passed))
    chunks, *_, decoding = columns
    machine, profile = run.hardware, run.engine
    name = known_model(run.model.name)
    waited_ns = sum(request.queue_ns for request in requests)
    served_ns = sum(request.finish_ns - request.arrival_ns for request in requests) - waited_ns
    return Sample(
        run,
        Labels(family(machine), machine.name, profile.name, profile.label, name),
        {kind: model.kernels[kind] for kind in kinds},
        np.array(work, dtype=np.float64),
        decoding + chunks,
        chunks,
        np.array(starts, dtype=np.float64),
        served_ns / max(request.finish_ns for request in requests),
        waited_ns / sum(request.first_token_ns - request.arrival_ns for request in requests),
        tuple(figures),
    )


def _times(
    passes: Mapping[str, Integers], requests: Sequence[RequestResult], engine: EngineProfile
) -> tuple[Integers, Integers, Integers]:
    """When each pass begins, when the next may be launched, and when it begins, in nanoseconds."""
    at_ns, ns, sequences = passes["at_ns"], passes["ns"], passes["decoding"] + passes["chunks"]
    device = ns * (engine.device_permille / 1000)
    host = engine.per_sequence_host_ns * sequences
    host = host + engine.step_host_ns + engine.prefill_host_ns * passes["chunks"]
    full = np.maximum(device, host) if engine.overlap else device + host
    busy = np.rint(full + engine.step_gap_ns).astype(np.int64)
    # steps that were computed at one instant run one after another
    before = np.cumsum(busy) - busy
    new = np.append(True, at_ns[1:] != at_ns[:-1])
    since = np.maximum.accumulate(np.where(new, np.arange(len(at_ns)), 0))
    begin = at_ns + before - before[since]
    last = max(request.finish_ns for request in requests)
    end = np.append(begin[1:], max(last, int(begin[-1] + ns[-1])))
    return begin, np.minimum(begin + busy, end), end


def _seconds(what: str, requests: Sequence[RequestResult]) -> Callable[[Integers], Floats]:
    """Until a time in nanoseconds, the seconds of a figure: the sum over the requests of their
    share of it x the time that they were in it."""
    arrival, first, finish, outputs = (
        np.array([getattr(request, name) for request in requests], dtype=np.float64)
        for name in ("arrival_ns", "first_token_ns", "finish_ns", "output_length")
    )
    some = outputs > 1
    share = some / np.maximum(outputs - 1, 1) / max(1, int(some.sum()))
    since, until = first, finish
    if what == TTFT:
        since, until, share = arrival, first, np.full(len(requests), 1 / len(requests))
    moments = np.concatenate([since, until])
    order = np.argsort(moments, kind="stable")
    rates = np.cumsum(np.concatenate([share, -share])[order])
    moments = moments[order]
    total = np.append(0.0, np.cumsum(rates[:-1] * np.diff(moments))) * _NS
    return lambda at: np.interp(at, moments, total)


def _clusters(passes: Mapping[str, Integers]) -> tuple[Integers, int]:
    """For each pass, the number of the passes that it is nearly like."""
    columns = [passes["chunks"]]
    for name, ratio in _ALIKE.items():  # numbers of geometric intervals; -1 for 0
        logs = np.log(np.maximum(passes[name], 1)) / np.log(ratio)
        columns.append(np.where(passes[name] > 0, np.round(logs), -1).astype(np.int64))
    _, cluster = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
    flat = cluster.reshape(-1).astype(np.int64)
    return flat, int(flat.max()) + 1


def _pass(
    chunks: float, tokens: float, pairs: float, context: float, decoding: float
) -> tuple[list[tuple[int, int]], int, int]:
    """A pass with these figures, of equal chunks."""
    number, sequences = round(chunks), round(decoding)
    equal = []
    if number:
        length = max(1, round(tokens / number))
        start = max(0, round(pairs / number / length - (length + 1) / 2))
        equal = [(start, start + length)] * number
    return equal, sequences, max(sequences, round(context * sequences / max(decoding, 1e-9)))
