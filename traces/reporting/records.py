"""The records of `hicache replay --requests`: one line for each served request.

docs/json.md describes every key. Tokens and nanoseconds are integers, so the sums of the records
are the report's figures exactly. Does not count anything; see traces/replaying.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from sim.engine.sequence import RequestResult

from ..formats.base import Trace
from ..replaying.account import Row
from ..replaying.following import EVICTED, History, Miss
from ..replaying.load import Slo
from ..replaying.run import Run
from .fleet import record_of
from .slo import limits_missed

Record = dict[str, object]


def lines(trace: Trace, run: Run, slo: Slo | None = None) -> Iterator[str]:
    """The records as lines of JSON, in the order of the trace."""
    for record in records(trace, run, slo):
        yield json.dumps(record) + "\n"


def records(trace: Trace, run: Run, slo: Slo | None = None) -> Iterator[Record]:
    """One record for each request that was served. The run must have kept its history."""
    assert run.history is not None
    results = {} if run.latency is None else {one.request: one for one in run.latency.requests}
    missed = None if slo is None or run.latency is None else limits_missed(slo, run.latency)
    for row in run.account.rows():
        found = record(trace, run.history, row, results.get(row.request))
        if missed is not None and "ttft_ns" in found:
            found["slo_missed"] = missed.get(row.request, [])
        yield found if run.fleet is None else found | record_of(run.fleet, row.request)


def record(trace: Trace, history: History, row: Row, result: RequestResult | None) -> Record:
    """The record of one request. result: None in `hits` mode, which has no times."""
    index = row.request
    found: Record = {
        "request": index,
        "line": trace.line_numbers[index],
        **_tokens(row, trace.jobs[index].output_length),
        **_ended(history.misses[index], result is not None),
    }
    if (caps := history.caps.get(index)) is not None:
        found |= {"capped": caps.tiers, "lost_to": caps.reason or None}
    return found if result is None else found | _times(result)


def _tokens(row: Row, output_tokens: int) -> Record:
    return {
        "input_tokens": row.input_tokens,
        "output_tokens": output_tokens,
        "hit_tokens": {"device": row.device, "host": row.host, "storage": row.storage},
        "computed_tokens": row.input_tokens - row.hit_tokens,
        "ceiling_tokens": row.ceiling,
        "first_seen_tokens": row.first_seen,
        "lost_tokens": row.lost,
    }


def _times(result: RequestResult) -> Record:
    return {
        "arrival_ns": result.arrival_ns,
        "queue_ns": result.queue_ns,
        "load_ns": result.load_ns,
        "compute_ns": result.compute_ns,
        "ttft_ns": result.first_token_ns - result.arrival_ns,
        "tpot_ns": mean_gap_ns(result),
        "finish_ns": result.finish_ns,
        "refusals": result.refusals,
        "preemptions": result.retractions,
    }


def mean_gap_ns(result: RequestResult) -> int | None:
    """Time per output token after the first; None without such tokens."""
    gaps = result.output_length - 1
    return (result.finish_ns - result.first_token_ns) // gaps if gaps > 0 else None


def _ended(miss: Miss, timed: bool) -> Record:
    evicted = miss.ended_by == EVICTED
    return {
        "hit_ended_by": miss.ended_by,
        "evicted_for_request": miss.evicted_for if evicted and miss.evicted_for >= 0 else None,
        "evicted_at_ns": miss.evicted_ns if evicted and timed else None,
    }
