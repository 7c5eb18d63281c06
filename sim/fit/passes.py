"""Replays a row in the simulator, with all passes, and how much each weighs in the figures.

In a closed loop without pauses the composition of passes hardly depends on their durations. So a
replay is recorded once, and a figure under other constants is a sum over its passes:

    mean TTFT    = time before the first pass
                 + sum of duration x (part of the requests that wait for their first token in it)
    mean TPOT    = sum of duration x (sum over what decodes in it of 1 / (outputs - 1)) / requests
    makespan     = sum of durations

A duration is the time from the launch of a pass until the next may be launched, so the host's time
between two passes is in it. Where no request was there, the time until one came is apart. Decode
steps are computed at every 64th step and interpolated between.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hicache.core.config import Config
from hicache.core.types import Key
from sim import fitted
from sim.engine.sequence import RequestResult
from sim.engine_profiles import EngineProfile
from sim.fitted import Factor
from sim.options import WorldOptions, engine_options
from sim.physics import defaults, family
from sim.replica import TimedResult
from sim.times.base import Chunks, TimeModel
from sim.times.roofline import Roofline
from sim.workload import Job
from sim.world import World

from .loads import Load
from .server import Server

Column = NDArray[np.float64]
_COLUMNS = ("at_ns", "chunks", "tokens", "pairs", "reads", "decoding", "context", "ns")
_PAGE_TOKENS = 64
_PAGES = 1 << 24  # of one prompt
# Pages are taken ahead for so many tokens where the pool may be full; else for the whole output.
_GROWTH_TOKENS = 64
_GROWTH_OF_LONG = 32  # an output of so many stretches is long: they are this part of it
_STEPS = 64


@dataclass(frozen=True)
class _Prompts:
    """Prompts that share nothing."""

    page_size: int
    jobs: Sequence[Job]

    def key(self, job: Job, length: int) -> Key:
        pages = np.arange(length // self.page_size, dtype=np.int64)
        return Key.from_page_ids(job.index * _PAGES + pages)


class Smooth:
    """A time model that computes decode passes at every 64th token of a sequence's context, and
    interpolates between. label: that of the model behind."""

    def __init__(self, model: TimeModel) -> None:
        self.layers, self.label = model.layers, model.label
        self._model = model
        self._decoding = self._low = self._high = -1
        self._low_ns = self._rise_ns = 0

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        return self._model.layer_ns(chunks, decoding, context)

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        return self._model.overhead_ns(chunks, decoding)

    def step_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        if chunks:
            return self._model.step_ns(chunks, decoding, context)
        if decoding != self._decoding or not self._low <= context < self._high:
            self._find(decoding, context)
        # rounded down, as integers
        return self._low_ns + self._rise_ns * (context - self._low) // (self._high - self._low)

    def _find(self, decoding: int, context: int) -> None:
        """The two exact steps around this one."""
        stretch = max(1, _STEPS * decoding)
        self._decoding = decoding
        self._low = context // stretch * stretch
        self._high = self._low + stretch
        self._low_ns = self._model.step_ns((), decoding, max(decoding, self._low))
        self._rise_ns = self._model.step_ns((), decoding, self._high) - self._low_ns


class Recorder:
    """A time model that notes every pass. now_ns: the time of the run; set before it begins."""

    def __init__(self, model: TimeModel) -> None:
        self.layers, self.label = model.layers, model.label
        self._model = model
        self.now_ns: Callable[[], int] = lambda: 0
        self._columns = {name: array("q") for name in _COLUMNS}

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        found = self._model.layer_ns(chunks, decoding, context)
        self._note(chunks, decoding, context, self.layers * found)
        return found

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        """Belongs to the pass whose layers were asked for last."""
        found = self._model.overhead_ns(chunks, decoding)
        self._columns["ns"][-1] += found
        return found

    def step_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        found = self._model.step_ns(chunks, decoding, context)
        self._note(chunks, decoding, context, found)
        return found

    def _note(self, chunks: Chunks, decoding: int, context: int, ns: int) -> None:
        row = (
            self.now_ns(),
            len(chunks),
            sum(end - start for start, end in chunks),
            sum((end - start) * (start + end + 1) // 2 for start, end in chunks),
            sum(end for _, end in chunks),
            decoding,
            context,
            ns,
        )
        for column, value in zip(self._columns.values(), row, strict=True):
            column.append(value)

    def columns(self) -> dict[str, NDArray[np.int64]]:
        return {name: np.asarray(column) for name, column in self._columns.items()}


@dataclass(frozen=True)
class Passes:
    """The passes of a replay in order, a column for each property.

    chunks    prompt chunks in the pass. tokens: their new tokens. pairs: of queries and keys in
              them, under the causal mask. reads: rows that they attend to.
    decoding  sequences that generate a token. context: tokens that they attend to, together.
    ns        the time model's duration. took_ns: on device and host.
    ttft, tpot, itl, makespan   seconds of that figure for each second of the pass.
    idle_s    by figure, the seconds of it in which nothing ran, after the first pass began.
    before_s  seconds of mean TTFT before the first pass.
    """

    chunks: NDArray[np.int64]
    tokens: NDArray[np.int64]
    pairs: NDArray[np.int64]
    reads: NDArray[np.int64]
    decoding: NDArray[np.int64]
    context: NDArray[np.int64]
    ns: NDArray[np.int64]
    took_ns: NDArray[np.int64]
    ttft: Column
    tpot: Column
    itl: Column
    makespan: Column
    idle_s: dict[str, float]
    before_s: float


def roofline(server: Server, given: tuple[Factor, ...]) -> Roofline:
    """The roofline of this server with these factors on its constants."""
    machine, generation = server.hardware, family(server.hardware)
    constants = fitted.roofline(
        defaults(generation), generation, machine.name, server.engine, server.model.name, given
    )
    return Roofline(server.model, machine, server.parallelism, server.engine, constants, "fit")


def record(server: Server, load: Load, costs: TimeModel) -> tuple[TimedResult, Passes]:
    """A replay with all of its passes, each of which `costs` gives."""
    recorder = Recorder(costs)
    pool = server.tokens_in_pool(load.mean_length)
    longest = max(job.output_length for job in load.jobs)
    tight = load.concurrency * load.longest > pool
    budget = max(_PAGE_TOKENS, load.pass_tokens or server.token_budget)
    flags = server.flags
    engine = replace(
        engine_options(server.engine, server.parallelism.attention_dp, budget, server.max_running),
        growth_tokens=max(_GROWTH_TOKENS, longest // _GROWTH_OF_LONG) if tight else load.longest,
        poll_passes=flags.poll_passes,
        wait_passes=flags.wait_passes,
        wait_permille=flags.wait_permille,
    )
    world = World(
        _Prompts(_PAGE_TOKENS, load.jobs),
        Config(
            page_size=_PAGE_TOKENS, device_pages=(max(1, pool // _PAGE_TOKENS),), host_pages=(0,)
        ),
        server.model,
        server.hardware,
        engine=engine,
        options=WorldOptions(parallelism=server.parallelism, concurrency=load.concurrency),
        costs=recorder,
    )
    recorder.now_ns = lambda: world.clock.now_ns
    found = world.run()
    return found, passes_of(recorder, found.requests, server.engine)


def passes_of(
    recorder: Recorder, requests: tuple[RequestResult, ...], engine: EngineProfile
) -> Passes:
    """The passes of a run and their weights. requests: those that were measured. engine: that ran
    them."""
    columns = recorder.columns()
    at_ns = columns.pop("at_ns")
    busy = _busy(columns, engine)
    begin = _begins(at_ns, busy)
    last = max((request.finish_ns for request in requests), default=0)
    end = np.append(begin[1:], max(last, int(begin[-1] + columns["ns"][-1])))
    done = np.minimum(begin + busy, end)
    arrival = np.array([one.arrival_ns for one in requests], dtype=np.float64)
    first = np.array([one.first_token_ns for one in requests], dtype=np.float64)
    finish = np.array([one.finish_ns for one in requests], dtype=np.float64)
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
    idle = {name: float(_seconds(done, end, *each).sum()) for name, each in inside.items()}
    took = np.maximum(done - begin, 1)
    ttft, tpot, itl = (_seconds(begin, done, *each) / took * 1e9 for each in inside.values())
    return Passes(
        **columns,
        took_ns=took,
        ttft=ttft,
        tpot=tpot,
        itl=itl,
        makespan=np.ones(len(begin)),
        idle_s=idle | {"makespan": float((end - done).sum()) / 1e9},
        before_s=float(np.maximum(begin[0] - arrival, 0).mean()) / 1e9,
    )


def _busy(columns: dict[str, NDArray[np.int64]], engine: EngineProfile) -> NDArray[np.int64]:
    """Nanoseconds of each pass on device and host, until the next one may be launched."""
    sequences = columns["decoding"] + columns["chunks"]
    device = columns["ns"] * (engine.device_permille / 1000)
    host = engine.step_host_ns + engine.per_sequence_host_ns * sequences
    host = host + engine.prefill_host_ns * columns["chunks"]
    took = np.maximum(device, host) if engine.overlap else device + host
    busy: NDArray[np.int64] = np.rint(took + engine.step_gap_ns).astype(np.int64)
    return busy


def _begins(at_ns: NDArray[np.int64], busy_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """When each pass began: steps that were computed at one instant run one after another."""
    before = np.cumsum(busy_ns) - busy_ns
    new = np.append(True, at_ns[1:] != at_ns[:-1])
    since = np.maximum.accumulate(np.where(new, np.arange(len(at_ns)), 0))
    begins: NDArray[np.int64] = at_ns + before - before[since]
    return begins


def _seconds(
    begin: NDArray[np.int64], end: NDArray[np.int64], since: Column, until: Column, share: Column
) -> Column:
    """Of each interval, the sum over the requests of their share x the seconds of it between
    `since` and `until`."""
    inside = _integral(end, since, share) - _integral(begin, since, share)
    inside -= _integral(end, until, share) - _integral(begin, until, share)
    return inside / 1e9


def _integral(at: NDArray[np.int64], since: Column, share: Column) -> Column:
    """Sum over the requests of share x max(0, at - since)."""
    order = np.argsort(since, kind="stable")
    starts, shares = since[order], share[order]
    total = np.append(0.0, np.cumsum(shares))
    moments = np.append(0.0, np.cumsum(shares * starts))
    place = np.searchsorted(starts, at, side="right")
    found: Column = at * total[place] - moments[place]
    return found
