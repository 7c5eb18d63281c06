"""One request as a table: `hicache replay TRACE --why N`."""

from __future__ import annotations

from sim.engine.sequence import RequestResult
from sim.workload import Job

from ..formats.base import Paged, Trace
from ..replaying.following import COMPLETE, EVICTED, FIRST_SEEN, NOT_READY, Miss
from ..replaying.run import NS_PER_S, Run
from ..terminal.text import name as shown
from .fleet import way_rows
from .stored import reason_in_words

Rows = list[tuple[str, str]]
_NO_NEXT_PAGE = (COMPLETE, FIRST_SEEN)


def why_rows(trace: Trace, paged: Paged, run: Run, index: int) -> Rows:
    """(label, value) of request `index`, which must have been served."""
    assert run.history is not None
    row = next(row for row in run.account.rows() if row.request == index)
    results = () if run.latency is None else run.latency.requests
    result = next((one for one in results if one.request == index), None)
    job, miss = trace.jobs[index], run.history.misses[index]
    rows = [
        ("line", f"{trace.line_numbers[index]:,} of {shown(trace.path)}"),
        ("input", f"{row.input_tokens:,} tokens"),
        ("output", f"{job.output_length:,} tokens"),
    ]
    if result is not None:
        own = result.arrival_ns != job.arrival_ns and job.after < 0
        in_trace = f" ({_seconds(job.arrival_ns)} in the trace)" if own else ""
        rows.append(("arrived", f"{_seconds(result.arrival_ns)}{in_trace}"))
    if run.fleet is not None:
        rows += way_rows(run.fleet, index)
    rows.append(("could reuse", f"{row.ceiling:,} tokens ({row.ceiling / row.input_tokens:.0%})"))
    if row.ceiling:
        first = _latest_with(trace, paged, job, -(-row.ceiling // paged.page_size) - 1)
        rows.append(("from request", first))
    tiers = {"device": row.device, "host": row.host, "storage": row.storage}
    hits = [f"{tokens:,} on {tier}" for tier, tokens in tiers.items() if tokens]
    rows.append(("hit", ", ".join(hits) or "0"))
    rows.append(("hit ended by", miss.ended_by.replace("_", " ")))
    if miss.ended_by == EVICTED:
        rows += _evicted(miss, result)
    elif miss.ended_by == NOT_READY:
        rows.append(("  computed by request", _latest_with(trace, paged, job, miss.hit_pages)))
    if miss.ended_by not in _NO_NEXT_PAGE and (caps := run.history.caps.get(index)) is not None:
        for tier, pools in caps.tiers.items():
            words = [f"{cap.replace('_', ' ')} ({pool})" for pool, cap in pools.items()]
            rows.append((f"  next page, {tier}", ", ".join(words)))
        if caps.reason:
            rows.append(("  lost to", reason_in_words(caps.reason)))
    rows.append(("computed", f"{row.input_tokens - row.hit_tokens:,} tokens"))
    rows.append(("computed twice", f"{row.lost:,} tokens"))
    if result is not None:
        rows += _times(result, run.history.refused.get(index, {}))
    return rows


def _latest_with(trace: Trace, paged: Paged, job: Job, page: int) -> str:
    """The latest request before `job` that has its page number `page`, and the line of it."""
    wanted = paged.chain(job)[page]
    for index in range(job.index - 1, -1, -1):
        chain = paged.chain(paged.jobs[index])
        if len(chain) > page and chain[page] == wanted:
            return f"{index} (line {trace.line_numbers[index]:,})"
    return "-"


def _evicted(miss: Miss, result: RequestResult | None) -> Rows:
    left = "host" if miss.from_host else "device"
    if result is not None and miss.evicted_ns >= 0:
        before = _seconds(result.admit_ns - miss.evicted_ns)
        left += f" at {_seconds(miss.evicted_ns)}, {before} before the admission"
    cause = f"request {miss.evicted_for} ({miss.evicted_at})"
    return [
        ("  next page left", left),
        ("  for", cause if miss.evicted_for >= 0 else miss.evicted_at),
    ]


def _times(result: RequestResult, refused: dict[str, int]) -> Rows:
    reasons = ", ".join(f"{name} {count:,} x" for name, count in sorted(refused.items()))
    waited = f"{_seconds(result.queue_ns)} for a pass, {_seconds(result.load_ns)} for loads"
    return [
        ("waited", waited),
        *([("  told to wait", reasons)] if refused else []),
        *([("preempted", f"{result.retractions:,} x")] if result.retractions else []),
        ("computing", _seconds(result.compute_ns)),
        ("first token after", _seconds(result.first_token_ns - result.arrival_ns)),
        ("ended", f"at {_seconds(result.finish_ns)}"),
    ]


def _seconds(time_ns: int) -> str:
    return f"{time_ns / NS_PER_S:,.3f} s"
