"""The error to expect of the times of a run, from the judged runs that are nearest to it."""

from __future__ import annotations

from hicache import registry

from ..expected import table
from ..expected.nearest import Asked, Expected, expected_error
from ..outside import entries
from ..replaying.run import Latency, Run
from ..replaying.settings import Settings


def expected_of(settings: Settings, run: Run, latency: Latency) -> Expected:
    """What is known of runs like this one."""
    replicas = 1 if run.fleet is None else len(run.fleet.replicas)
    at_once = table.at_once(latency.requests, latency.makespan_ns, replicas)
    queue, ttft = (latency.spreads[name].mean for name in ("queue", "ttft"))
    asked = Asked(
        times=entries.spelled(registry.TIMES, settings.times),
        hardware=settings.hardware.name,
        engine=settings.engine.profile.name,
        model=settings.model.name,
        ranks=settings.parallelism.ranks,
        precision=table.precision(settings.model.weight_dtype),
        load=table.load(at_once),
        queueing=queue / ttft if ttft else 0.0,
    )
    return expected_error(asked, table.shipped())
