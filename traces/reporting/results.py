"""The record of a replay, and one for each request, from what the run counted.

Tokens and nanoseconds are integers, so the sums of the records of the requests are the figures of
the result exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from math import sqrt

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from hicache import registry
from sim.engine.sequence import RequestResult

from ..expected import table
from ..formats.base import Trace
from ..outside import entries
from ..replaying.config import ReplayConfig
from ..replaying.fleet import trip_times
from ..replaying.following import EVICTED
from ..replaying.load import NAMES, Kept, Slo, kept
from ..replaying.run import NS_PER_S, FleetUse, Latency, Run
from ..replaying.sizes import Skipped
from ..results.record import (
    Class,
    ExpectedError,
    Goodput,
    Judged,
    LoadFigures,
    LookupFigures,
    Measured,
    Output,
    Request,
    Requests,
    Result,
    Tiers,
    TraceFigures,
)
from .limits import Load, load_of_run

_BOUNDS = (2_048, 8_192, 32_768)  # tokens of a prompt, between two classes
_LEAST_REQUESTS = 10  # in a batch
_MOST_TENANTS = 8
_STUDENT = {5: 2.78, 10: 2.26, 20: 2.09}  # standard errors of the mean of so many, at 95 %
_RULE_OF_THREE = 3


def result_of(trace: Trace, settings: ReplayConfig, run: Run) -> Result:
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
        measured=_measured(trace),
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
        load=_load(load, latency),
        times_from=settings.time_model.label,
        stages=run.stages,
        expected_error=_expected(settings, run, latency, load.queueing),
        preempted=run.preempted,
    )


def _measured(trace: Trace) -> Measured | None:
    cached, ttft_ns = trace.measured
    if cached is None and ttft_ns is None:
        return None
    return Measured(cached, None if ttft_ns is None else ttft_ns / NS_PER_S)


def _requests(some: Skipped) -> Requests:
    return Requests(len(some.requests), some.input_tokens)


def _load(load: Load, latency: Latency) -> LoadFigures:
    """With the requests that ran at once: admitted, and not ended."""
    changes = [(one.admit_ns, 1) for one in latency.requests]
    changes += [(one.finish_ns, -1) for one in latency.requests]
    running = accumulate(change for _, change in sorted(changes))
    return LoadFigures(
        offered=load.offered or None,
        queueing_share=load.queueing,
        overloaded=load.overloaded,
        running_mean=table.at_once(latency.requests, latency.makespan_ns),
        running_most=max(running, default=0),
    )


def _expected(settings: ReplayConfig, run: Run, latency: Latency, queueing: float) -> ExpectedError:
    """The error to expect, from the judged runs that are nearest to this one."""
    replicas = 1 if run.fleet is None else len(run.fleet.figures.replicas)
    at_once = table.at_once(latency.requests, latency.makespan_ns, replicas)
    judged = Judged(
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
    return table.expected_error(judged, table.shipped(table.KNOWN), table.shipped(table.NEW))


def _lookups(settings: ReplayConfig, run: Run) -> Iterator[LookupFigures]:
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
        )


# -- limits that requests must keep


def goodput(trace: Trace, slo: Slo, latency: Latency) -> Goodput:
    """The requests that keep all limits, and how many a second those are (docs/load.md)."""
    served = latency.served
    each = kept(slo, served)
    attained = np.ones(len(latency.requests), dtype=np.bool_)
    for one in each.values():
        attained &= one
    count, given = int(attained.sum()), dict(slo.limits)
    tokens, seconds = int(served.output_tokens[attained].sum()), latency.makespan_ns / NS_PER_S
    return Goodput(
        **{f"{name}_s": given[name] / NS_PER_S if name in given else None for name in NAMES},
        attained_requests=count,
        attained_rate=count / len(attained) if len(attained) else 0.0,
        attained_error=_chance(latency, attained),
        goodput_requests_per_s=count / seconds if seconds else 0.0,
        goodput_tokens_per_s=tokens / seconds if seconds else 0.0,
        missed={name: int((~each[name]).sum()) if name in each else None for name in NAMES},
        classes=list(_classes(trace, latency, attained)),
    )


def _chance(latency: Latency, attained: Kept) -> float | None:
    """How far the part of the requests that keep the limits may be from that of other traces of the
    same traffic, 19 times of 20: by how much it differs from one fifth, tenth or twentieth of the
    requests to the next, in the order of their arrivals (batch means; the largest counts, since
    queues last). If all are alike, by the rule of three."""
    count = len(attained)
    if count < max(_STUDENT) * _LEAST_REQUESTS:
        return None
    order = np.argsort([one.arrival_ns for one in latency.requests], kind="stable")
    errors = [_RULE_OF_THREE / count]
    for blocks, times in _STUDENT.items():
        rates = [float(one.mean()) for one in np.array_split(attained[order], blocks)]
        errors.append(times * float(np.std(rates, ddof=1)) / sqrt(blocks))
    return max(errors)


def _classes(trace: Trace, latency: Latency, attained: Kept) -> Iterator[Class]:
    """By the length of the prompt, and by tenant if there are several and not too many."""
    lengths = np.array([one.input_length for one in latency.requests], dtype=np.int64)
    for least, most in zip((0, *_BOUNDS), (*_BOUNDS, None), strict=True):
        chosen = (lengths >= least) & (lengths < (most or 1 << 62))
        if chosen.any():
            name = f"{least:,} to {most - 1:,}" if most else f"{least:,} or more"
            yield Class("prompt_tokens", name, int(chosen.sum()), int(attained[chosen].sum()))
    if 1 < len(trace.tenant_names) <= _MOST_TENANTS:
        tenants = trace.tenants[[one.request for one in latency.requests]]
        for number, name in enumerate(trace.tenant_names):
            chosen = tenants == number
            if chosen.any():
                yield Class("tenant", name, int(chosen.sum()), int(attained[chosen].sum()))


# -- one record for each request


def requests_of(trace: Trace, run: Run, slo: Slo | None = None) -> Iterator[Request]:
    """One record for each request that was served. The run must have kept its history."""
    assert run.history is not None
    results: dict[int, RequestResult] = {}
    missed: dict[int, list[str]] | None = None
    if run.latency is not None:
        results = {one.request: one for one in run.latency.requests}
        missed = None if slo is None else _missed(slo, run.latency)
    for row in run.account.rows():
        index, miss = row.request, run.history.misses[row.request]
        result, caps = results.get(index), run.history.caps.get(index)
        evicted = miss.ended_by == EVICTED
        found = Request(
            request=index,
            line=trace.line_numbers[index],
            input_tokens=row.input_tokens,
            output_tokens=trace.jobs[index].output_length,
            hit_tokens=Tiers(row.device, row.host, row.storage),
            computed_tokens=row.input_tokens - row.hit_tokens,
            ceiling_tokens=row.ceiling,
            first_seen_tokens=row.first_seen,
            lost_tokens=row.lost,
            hit_ended_by=miss.ended_by,
            evicted_for_request=miss.evicted_for if evicted and miss.evicted_for >= 0 else None,
            evicted_at_ns=miss.evicted_ns if evicted and result is not None else None,
            capped=None if caps is None else caps.tiers,
            lost_to=UNSET if caps is None else caps.reason or None,
        )
        if result is not None:
            found = replace(
                found,
                **_times(result),
                slo_missed=None if missed is None else missed.get(index, []),
            )
        yield found if run.fleet is None else replace(found, **_way(run.fleet, index))


def _times(result: RequestResult) -> dict[str, int | None]:
    gaps = result.output_length - 1
    after_first = result.finish_ns - result.first_token_ns
    return {
        "arrival_ns": result.arrival_ns,
        "queue_ns": result.queue_ns,
        "load_ns": result.load_ns,
        "compute_ns": result.compute_ns,
        "ttft_ns": result.first_token_ns - result.arrival_ns,
        "tpot_ns": after_first // gaps if gaps > 0 else None,
        "finish_ns": result.finish_ns,
        "refusals": result.refusals,
        "preemptions": result.retractions,
    }


def _missed(slo: Slo, latency: Latency) -> dict[int, list[str]]:
    """The limits that each request misses, by its number; none for those that keep all."""
    found: dict[int, list[str]] = {}
    for name, one in kept(slo, latency.served).items():
        for place in np.flatnonzero(~one).tolist():
            found.setdefault(latency.requests[place].request, []).append(name)
    return found


def _way(use: FleetUse, request: int) -> dict[str, int | None]:
    """Where a request went, in a fleet. Its only token came from the prefill replica if there is no
    trip."""
    found: dict[str, int | None] = {"replica": use.choices[request]}
    if use.trips is None:
        return found
    trip = use.trips.get(request)
    if trip is None:
        return {**found, "decode_replica": None}
    times = {f"{name}_ns": time for name, time in trip_times(trip).items()}
    return {**found, "decode_replica": trip.decode, **times, "link_bytes": trip.bytes}
