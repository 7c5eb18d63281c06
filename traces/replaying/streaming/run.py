"""Replays a trace that is read once. The figures are those of a replay that holds its trace.

What needs every request at the end is left out: turns of conversations, histories, single requests.
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from hicache.core.errors import CallerError
from invariants.watch import Watch
from sim.engine.engine import Engine
from sim.engine.sequence import RequestResult
from sim.fleet.fleet import Fleet, FleetResult
from sim.replica import TimedResult
from sim.world import World

from ...formats._streamed import StreamedPages, StreamedTrace
from ...results.record import Streaming
from ...terminal.progress import counting, progress
from ..observing.team import Team
from ..playing import Play, play
from ..run import Latency, Run
from ..settings import Settings
from .parts import Parts
from .sums import Each, Sums
from .times import Times


def run(
    trace: StreamedTrace,
    settings: Settings,
    watch: Watch | None,
    start: float,
    each: Each | None = None,
) -> Run:
    """One replay. start: time.perf_counter() when the command began. each: see `Sums`."""
    core = settings.core
    if len(core.components) > 1:
        raise CallerError(
            f"--components: expected full alone for a trace that is read once, found "
            f"{','.join(core.components)}; name one, or a --model with full attention"
        )
    timed = settings.mode == "timed"
    room = core.device_pages[0] * core.page_size
    pages = StreamedPages(trace, core.page_size, room, not timed, not timed)
    trace.jobs = pages.jobs
    sums = Sums(core.page_size, pages.held, each)
    parts, times = Parts(), Times()
    engines: list[Engine] = []

    def begun(world: World | Fleet) -> None:
        assert isinstance(world, World)
        engines.append(world.engine)
        world.told = told

    def told(one: RequestResult) -> None:
        sums.result = one
        sums.admit(one.request, one.device_tokens, one.host_tokens, one.storage_tokens)
        pages.forget(one.request)
        times.ended(one)
        parts.ended()
        if times.due():
            fold()

    def fold() -> None:
        for engine in engines:
            for gaps in engine.gaps:
                times.fold(gaps, engine.waiting_of(gaps))

    def latency(result: TimedResult | FleetResult) -> tuple[Latency, int]:
        fold()
        return times.latency(result.makespan_ns), times.preempted

    team = Team(pages, settings, np.zeros(0, dtype=np.int32), watch)
    played = Play(
        pages, pages, settings, sums, team, begun=begun, latency=latency, ended=parts.ended
    )
    shown = progress("replay", trace.total) if trace.total else counting("replay")
    result = play(played, shown)
    return replace(
        result,
        streaming=Streaming(
            ceiling_exact=not pages.ceiling.forgot,
            percentiles_exact=times.exact,
            group_requests=sums.group,
            part_requests=parts.requests,
            cpu_s=parts.cpu_s,
            peak_bytes=parts.peak_bytes,
        ),
        wall_s=time.perf_counter() - start,
    )
