"""The `timed` mode: builds the simulated world for a trace, and reads latencies from its result.

Does not contain any rule of the simulation (see sim) or interpret the counts (see account).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hicache.runtime.driver import Observer
from sim.fleet.fleet import Fleet, FleetResult
from sim.fleet.options import FleetOptions
from sim.options import WorldOptions
from sim.replica import TimedResult, WorldStorage
from sim.rounds import RoundOptions
from sim.storage.contents import Contents
from sim.world import World

from ..formats.base import Paged
from .account import Account
from .config import ReplayConfig
from .run import Latency


def build(
    trace: Paged,
    settings: ReplayConfig,
    observers: Sequence[Observer],
    progress: Callable[[int], None],
    contents: Contents | None = None,
    rounds: RoundOptions | None = None,
) -> World:
    """The simulated world for this trace and these settings."""
    return World(
        trace,
        settings.core,
        settings.model,
        settings.hardware,
        engine=settings.engine,
        options=_options(settings),
        storage=_storage(settings, contents),
        rounds=rounds,
        sender=trace.jobs.sender,
        wants=settings.wants,
        observers=observers,
        progress=lambda ended, _: progress(ended),
    )


def build_fleet(
    trace: Paged,
    settings: ReplayConfig,
    fleet: FleetOptions,
    observers: Sequence[Sequence[Observer]],
    progress: Callable[[int], None],
    contents: Contents | None = None,
) -> Fleet:
    """The simulated replicas for this trace and these settings. observers: of each replica."""
    return Fleet(
        trace,
        settings.core,
        settings.model,
        settings.hardware,
        fleet,
        page_bytes=settings.value_bytes[settings.core.components[0]],
        engine=settings.engine,
        options=_options(settings),
        storage=_storage(settings, contents),
        sender=trace.jobs.sender,
        observers=observers,
        progress=lambda ended, _: progress(ended),
    )


def _options(settings: ReplayConfig) -> WorldOptions:
    return WorldOptions(
        checks=settings.check,
        seed=settings.seed,
        parallelism=settings.parallelism,
        times=settings.times,
        speed=settings.speed,
        concurrency=settings.load.concurrency,
    )


def _storage(settings: ReplayConfig, contents: Contents | None) -> WorldStorage | None:
    storage = settings.storage
    if storage is None or contents is None:
        return None
    return WorldStorage(contents, storage.options, settings.value_bytes, storage.limit)


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
