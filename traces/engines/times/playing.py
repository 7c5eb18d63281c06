"""The same workload in the simulator: its requests with the tokens that the engine has seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache.core.config import Config
from hicache.core.types import Key
from sim.engine.sequence import RequestResult
from sim.hardware.profile import HardwareProfile
from sim.options import WorldOptions, engine_options
from sim.times.base import MEASURED
from sim.workload import Job
from sim.world import World

from .comparing import Times
from .workloads import Workload

_NS = 1e9


class Seen:
    """A workload with known tokens. streams: of each request, its prompt and its answer."""

    def __init__(
        self, page_size: int, workload: Workload, streams: Sequence[Sequence[int]]
    ) -> None:
        self.page_size = page_size
        self._streams = streams
        self.jobs: list[Job] = [
            Job(
                place,
                int(one.at_s * _NS),
                len(streams[place]) - one.max_tokens,
                one.max_tokens,
                one.after,
                place if one.after < 0 else _first(workload, place),
            )
            for place, one in enumerate(workload.requests)
        ]

    def key(self, job: Job, length: int) -> Key:
        """See `sim.workload`."""
        return Key.from_tokens(self._streams[job.index][:length], self.page_size)


def _first(workload: Workload, place: int) -> int:
    while workload.requests[place].after >= 0:
        place = workload.requests[place].after
    return place


def streams_of(workload: Workload, answers: Sequence[dict[str, Any]]) -> list[list[int]]:
    """The tokens of each request, prompt then answer."""
    found: list[list[int]] = []
    for one, answer in zip(workload.requests, answers, strict=True):
        before = found[one.after] if one.extends else []
        found.append([*before, *one.tokens, *answer["tokens"]])
    return found


def play(
    workload: Workload,
    streams: Sequence[Sequence[int]],
    profile: HardwareProfile,
    device_pages: int,
    host_pages: int,
) -> Times:
    """What the simulator says of it. The cache is empty at the beginning."""
    served = profile.served
    assert served is not None
    jobs = Seen(served.model.page_size, workload, streams)
    core = Config(
        page_size=jobs.page_size,
        device_pages=(device_pages,),
        host_pages=(host_pages,),
        components=served.model.components,
        write_policy="write_through",
    )
    world = World(
        jobs,
        core,
        served.model,
        profile,
        engine=engine_options(served.engine),
        options=WorldOptions(times=MEASURED, concurrency=workload.at_once),
    )
    result = world.run()
    rows = sorted(result.requests, key=lambda one: one.request)
    return Times(
        ttft_s=tuple((one.first_token_ns - one.arrival_ns) / _NS for one in rows),
        tpot_s=tuple(_tpot(one) for one in rows),
        queue_s=tuple((one.admit_ns - one.arrival_ns) / _NS for one in rows),
        hits=tuple(one.device_tokens + one.host_tokens for one in rows),
        tokens_per_s=sum(one.output_length for one in rows) / (result.makespan_ns / _NS),
    )


def _tpot(one: RequestResult) -> float:
    if one.output_length < 2:
        return 0.0
    return (one.finish_ns - one.first_token_ns) / (one.output_length - 1) / _NS
