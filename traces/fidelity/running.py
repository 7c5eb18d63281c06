"""Replays one published run in the simulator, and reads its figures from the result.

A prompt is a list of segments, each of a stream of tokens: two prompts share the pages that lie in
the same streams at the same places. Without segments a prompt has a stream of its own. Outputs are
never shared. Does not decide what is replayed (see workloads and setup) or judge (see judging).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from hicache.core.config import Config
from hicache.core.types import Key, Tier
from sim.engine.sequence import RequestResult
from sim.fitted import factors as fitted
from sim.fitted.factors import Factor
from sim.options import WorldOptions, engine_options
from sim.physics.constants import defaults, family
from sim.replica import TimedResult
from sim.rounds import RoundOptions
from sim.times import base as times
from sim.times.base import Chunks, TimeModel
from sim.times.roofline import Roofline
from sim.workload import Job
from sim.world import World

from .figures import Figure
from .passes import Passes, Recorder, passes_of
from .setup import Setup
from .workloads import Load, Segments

_PAGES = 1 << 24  # of one stream


@dataclass(frozen=True)
class Prompts:
    """See the module. segments: (stream, tokens) of each prompt, in order; () where nothing is
    shared. Streams are at least 0."""

    page_size: int
    jobs: Sequence[Job]
    segments: Sequence[Segments] = ()

    def key(self, job: Job, length: int) -> Key:
        pages = length // self.page_size
        if not self.segments:
            return Key.from_page_ids(self._own(job, 0, pages))
        found: list[NDArray[np.int64]] = []
        end, done = 0, 0
        for stream, tokens in self.segments[job.index]:
            end += tokens
            last = min(end // self.page_size, pages)
            if last > done:
                found.append(stream * _PAGES + np.arange(done, last, dtype=np.int64))
                done = last
        if pages > done:
            found.append(self._own(job, done, pages))
        return Key.from_page_ids(np.concatenate(found) if found else [])

    def _own(self, job: Job, first: int, end: int) -> NDArray[np.int64]:
        stream = self._streams + job.index
        return stream * _PAGES + np.arange(first, end, dtype=np.int64)

    @cached_property
    def _streams(self) -> int:
        """One more than the highest stream of any segment."""
        return 1 + max((stream for each in self.segments for stream, _ in each), default=-1)


_STEPS = 64


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


PAGE_TOKENS = 64
_SHARED_PAGE_TOKENS = 16  # vLLM's blocks, for prompts that share prefixes
# Pages are taken ahead for so many tokens where the pool may be full; else for the whole output.
_GROWTH_TOKENS = 64
_GROWTH_OF_LONG = 32  # an output of so many stretches is long: they are this part of it
_NS = 1e9


@dataclass(frozen=True, slots=True)
class Replayed:
    """The result of a replay, and its load. label: the time model behind it. hits: by turn, cached
    prompt tokens / prompt tokens."""

    result: TimedResult
    load: Load
    label: str

    @property
    def hits(self) -> tuple[float, ...]:
        turns = self.load.turns or (0,) * len(self.load.jobs)
        cached, total = [0] * (max(turns) + 1), [0] * (max(turns) + 1)
        for request in self.result.requests:
            turn = turns[request.request]
            cached[turn] += request.device_tokens + request.host_tokens
            total[turn] += request.input_length
        return tuple(part / whole for part, whole in zip(cached, total, strict=True))


def replay(
    setup: Setup, load: Load, model: str, given: tuple[Factor, ...] | None = None
) -> Replayed:
    """Replays these requests on this server. model: the name of a time model. given: the factors
    on the constants of the roofline; None for those of this project."""
    own = given is not None and model == times.DEFAULT
    costs = Smooth(roofline(setup, given or ()) if own else _times(setup, model))
    return Replayed(_world(setup, load, costs).run(), load, costs.label)


def record(setup: Setup, load: Load, costs: times.TimeModel) -> tuple[Replayed, Passes]:
    """A replay with all of its passes, each of which `costs` gives."""
    recorder = Recorder(costs)
    world = _world(setup, load, recorder)
    recorder.now_ns = lambda: world.clock.now_ns
    found = Replayed(world.run(), load, recorder.label)
    return found, passes_of(recorder, found.result.requests, setup.engine)


def roofline(setup: Setup, given: tuple[Factor, ...]) -> Roofline:
    """The roofline of this server with these factors on its constants."""
    machine, generation = setup.hardware, family(setup.hardware)
    constants = fitted.roofline(
        defaults(generation), generation, machine.name, setup.engine, setup.model.name, given
    )
    source = "fitted to a part of the rows" if given else "defaults"
    return Roofline(setup.model, machine, setup.parallelism, setup.engine, constants, source)


def _times(setup: Setup, model: str) -> times.TimeModel:
    return times.make(model, setup.model, setup.hardware, setup.parallelism, setup.engine)


def _world(setup: Setup, load: Load, costs: times.TimeModel) -> World:
    page = _SHARED_PAGE_TOKENS if load.segments and not load.turns else PAGE_TOKENS
    pool = load.pool_tokens or setup.tokens_in_pool(load.mean_length)
    longest = max(job.output_length for job in load.jobs)
    tight = load.concurrency == 0 or load.concurrency * load.longest > pool
    budget = load.pass_tokens or setup.token_budget
    pages = max(1, pool // page)
    host = 4 * sum(-(-job.input_length // page) for job in load.jobs) if load.emptied else 0
    config = Config(page_size=page, device_pages=(pages,), host_pages=(host,))
    made = engine_options(
        setup.engine, setup.parallelism.attention_dp, max(page, budget), setup.max_running
    )
    flags = setup.flags
    engine = replace(
        made,
        growth_tokens=max(_GROWTH_TOKENS, longest // _GROWTH_OF_LONG) if tight else load.longest,
        poll_passes=flags.poll_passes,
        wait_passes=flags.wait_passes,
        wait_permille=flags.wait_permille,
    )
    options = WorldOptions(parallelism=setup.parallelism, concurrency=load.concurrency)
    rounds = None
    if load.turns and load.sender is None:
        rounds = RoundOptions(load.turns, (Tier.DEVICE,) if load.emptied else ())
    return World(
        Prompts(page, load.jobs, load.segments),
        config,
        setup.model,
        setup.hardware,
        engine=engine,
        options=options,
        rounds=rounds,
        sender=load.sender,
        costs=costs,
    )


def predicted(replayed: Replayed, figure: Figure) -> float | None:
    """The same figure of the replay, in the unit of the published one; None if it has none."""
    requests = _part(replayed, figure.phase)
    if not requests:
        return None
    if figure.statistic == "":
        return _rate(replayed.result, requests, figure.what)
    if figure.what == "ttft":
        return _statistic(_column(requests, "first_token_ns", "arrival_ns"), figure.statistic)
    if figure.what == "e2e":
        return _statistic(_column(requests, "finish_ns", "arrival_ns"), figure.statistic)
    several = [one for one in requests if one.output_length > 1]
    if not several:
        return None
    decoded = _column(several, "finish_ns", "first_token_ns")
    tokens = np.array([one.output_length - 1 for one in several])
    if figure.what == "tpot":
        return _statistic(decoded / tokens, figure.statistic)
    if figure.statistic == "mean":
        return float(decoded.sum() / tokens.sum())
    return _gaps(replayed.result, figure.statistic)


def _part(replayed: Replayed, phase: str) -> list[RequestResult]:
    turn = {"cold": 0, "warm": 1}.get(phase)
    turns = replayed.load.turns
    return [one for one in replayed.result.requests if turn is None or turns[one.request] == turn]


def _column(requests: list[RequestResult], end: str, begin: str) -> NDArray[np.float64]:
    """Seconds between two instants of each request."""
    return np.array([getattr(one, end) - getattr(one, begin) for one in requests]) / _NS


def _statistic(values: NDArray[np.float64], name: str) -> float:
    if name == "mean":
        return float(values.mean())
    return float(np.percentile(values, 50 if name == "median" else int(name[1:])))


def _rate(result: TimedResult, requests: list[RequestResult], what: str) -> float | None:
    begin = min(one.arrival_ns for one in requests)
    seconds = (max(one.finish_ns for one in requests) - begin) / _NS
    if what == "duration":
        return seconds
    amounts = {
        "output_tok_s": sum(one.output_length for one in requests),
        "input_tok_s": sum(one.input_length for one in requests),
        "req_s": len(requests),
    }
    amounts["total_tok_s"] = amounts["output_tok_s"] + amounts["input_tok_s"]
    return amounts[what] / seconds if seconds else None


def _gaps(result: TimedResult, statistic: str) -> float | None:
    """A percentile of the times between two tokens."""
    ended = np.array([one.request for one in result.requests])
    pairs = [gaps.weighted(ended) for gaps in result.gaps]
    times_ns = np.concatenate([each[0] for each in pairs])
    counts = np.concatenate([each[1] for each in pairs])
    if not counts.sum():
        return None
    order = np.argsort(times_ns)
    part = 0.5 if statistic == "median" else int(statistic[1:]) / 100
    place = int(np.searchsorted(np.cumsum(counts[order]), part * counts.sum()))
    return float(times_ns[order][min(place, len(order) - 1)] / _NS)
