"""The figures of a replay in one record, put together from what the run counted.

The `--json` document is this record (docs/json.md); other programs read it, so no key is renamed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hicache import registry

from ..expected import table
from ..expected.table import Asked, expected_error
from ..expected.words import document as expected
from ..formats.base import Trace
from ..outside import entries
from ..replaying.config import ReplayConfig as Settings
from ..replaying.run import Latency, Run
from ..replaying.sizes import Skipped
from ..results.record import LookupFigures, Output, Requests, Result, TraceFigures
from .components import describe
from .limits import load_of_run
from .slo import goodput


def result_of(trace: Trace, settings: Settings, run: Run) -> Result:
    """The figures of a replay."""
    whole = run.account.whole()
    found = Result(
        interrupted=run.interrupted,
        served_requests=whole.requests,
        trace=TraceFigures(
            path=trace.path,
            format=trace.format,
            requests=len(trace.jobs),
            input_tokens=trace.jobs.input_tokens,
            block_size=trace.block_size,
            identity=trace.identity,
        ),
        skipped=_requests(settings.skipped),
        uncached=_requests(settings.uncached),
        config=settings.as_options(),
        whole=whole,
        steady=run.account.steady(),
        refused=run.refused,
        transfers=run.transfers,
        storage=run.storage,
        evicted_pages=run.evicted,
        components=run.components,
        lookups=list(_lookups(settings, run)) if len(run.components) > 1 else None,
        turns_from=run.turns_from if run.turns else None,
        turns=run.turns or None,
        checks=run.checks,
        fleet=None if run.fleet is None else run.fleet.figures,
        digest=run.digest,
        wall_s=round(run.wall_s, 3),
    )
    latency, slo, load = run.latency, settings.slo, load_of_run(trace.jobs, settings, run)
    if latency is None or load is None:
        return found
    return replace(
        found,
        latency_s=latency.figures,
        output=Output(latency.generated_tokens, latency.tokens_per_s),
        slo=None if slo is None else goodput(trace, slo, latency),
        load=load.figures,
        times_from=settings.time_model.label,
        stages=run.stages,
        expected_error=_expected(settings, run, latency, load.queueing),
        preempted=run.preempted,
    )


def _requests(some: Skipped) -> Requests:
    return Requests(len(some.requests), some.input_tokens)


def _expected(settings: Settings, run: Run, latency: Latency, queueing: float) -> dict[str, object]:
    """The error to expect, from the judged runs that are nearest to this one."""
    replicas = 1 if run.fleet is None else len(run.fleet.figures.replicas)
    at_once = table.at_once(latency.requests, latency.makespan_ns, replicas)
    asked = Asked(
        times=entries.spelled(registry.TIMES, settings.times),
        hardware=settings.hardware.name,
        engine=settings.engine.profile.name,
        model=settings.model.name,
        ranks=settings.parallelism.ranks,
        precision=table.precision(settings.model.weight_dtype),
        load=table.load(at_once),
        queueing=queueing,
        stages=settings.parallelism.pp,
    )
    return expected(expected_error(asked, table.shipped(table.KNOWN), table.shipped(table.NEW)))


def _lookups(settings: Settings, run: Run) -> Iterator[LookupFigures]:
    size, names = settings.core.page_size, run.lookups.components
    for index in sorted(run.lookups.by_request):
        row = run.lookups.by_request[index]
        yield LookupFigures(
            request=index,
            wanted=row.wanted * size,
            device=row.device * size,
            host=row.host * size,
            depths={name: depth * size for name, depth in zip(names, row.depths, strict=True)},
            capped_by=row.cap,
            because=describe(settings, row),
        )
