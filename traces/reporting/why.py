"""The story of one request in plain words: `hicache replay TRACE --why N`.

What it shares with an earlier request, what of this each tier had, what was missing and why, and
what it waited for. Does not decide anything: the figures are those of its record (see records).
"""

from __future__ import annotations

from sim.engine.sequence import RequestResult
from sim.workload import Job

from ..formats.base import Paged, Trace
from ..replaying.account import Row
from ..replaying.following.caps import EVICTED as EVICTED_PAGE
from ..replaying.following.caps import FIRST_SEEN as FIRST_SEEN_PAGE
from ..replaying.following.caps import NEVER_BACKED_UP, NEVER_STORED, STORE_FAILED, THERE, Caps
from ..replaying.following.caps import NOT_READY as NOT_READY_PAGE
from ..replaying.following.history import (
    COMPLETE,
    EVICTED,
    FIRST_SEEN,
    NOT_LOADED,
    NOT_READY,
    OTHER_REPLICA,
    TOGETHER,
    TOO_LARGE,
    History,
    Miss,
)
from ..replaying.run import NS_PER_S, Run
from ..terminal.text import name as shown
from .stored import reason_in_words

_TIERS = {"device": "the device", "host": "host memory", "storage": "storage"}
_CAPS = {
    THERE: "it is there",
    FIRST_SEEN_PAGE: "no earlier request has it",
    NOT_READY_PAGE: "no request had computed it yet",
    NEVER_BACKED_UP: "it was never copied there (--write-policy)",
    NEVER_STORED: "it was never stored",
    STORE_FAILED: "storage did not take it",
    EVICTED_PAGE: "it had been there and is gone",
}
_EMPTIED = ("EvictWanted", "Flushed")
_OPERATIONS = {"ContinueWanted": "a chunk of ", "PagesWanted": "the output of "}
_WAITS = {
    "writing_back": "for copies to host that had to end first",
    "arriving": "for a load of the same pages by another request",
    "no_pages": "because other requests used the pages",
    "fetching": "for its prefetch from storage",
}


def story(trace: Trace, paged: Paged, run: Run, index: int) -> list[str]:
    """The sentences, one for each line. The request must have been served."""
    assert run.history is not None
    row = next(row for row in run.account.rows() if row.request == index)
    results = () if run.latency is None else run.latency.requests
    result = next((one for one in results if one.request == index), None)
    job, history = trace.jobs[index], run.history
    told = [
        f"Request {index}, line {trace.line_numbers[index]:,} of {shown(trace.path)}: "
        f"{row.input_tokens:,} input tokens, {job.output_length:,} output tokens"
        + (f", arrived at {_arrival(job, result)}." if result else "."),
        _shared(trace, paged, job, row),
        _hit(row),
        *_missing(paged, history, job, row, result),
    ]
    if result is not None:
        told += _times(result, history)
    return told


def _arrival(job: Job, result: RequestResult) -> str:
    """The time of the replay; with --speed the trace's own, too, where it has one."""
    time = _seconds(result.arrival_ns)
    if job.after >= 0 or job.arrival_ns == result.arrival_ns:
        return time
    return f"{time} ({_seconds(job.arrival_ns)} in the trace)"


def _shared(trace: Trace, paged: Paged, job: Job, row: Row) -> str:
    if not row.ceiling:
        return "It shares no whole page with an earlier request, so no cache could help it."
    page = -(-row.ceiling // paged.page_size) - 1
    other = _latest_with(paged, job, page)
    whose = "" if other < 0 else f": request {other} (line {trace.line_numbers[other]:,}) has them"
    return (
        f"It could reuse at most {row.ceiling:,} tokens ({_percent(row.ceiling, row)}), its "
        f"longest common prefix with an earlier request{whose}."
    )


def _latest_with(paged: Paged, job: Job, page: int) -> int:
    """The latest request before `job` that has its page number `page`; -1 if there is none."""
    wanted = paged.chain(job)[page]
    for index in range(job.index - 1, -1, -1):
        chain = paged.chain(paged.jobs[index])
        if len(chain) > page and chain[page] == wanted:
            return index
    return -1


def _hit(row: Row) -> str:
    if not row.hit_tokens:
        return "It hit nothing: neither the device nor host memory had its first page."
    parts = [
        (row.device, "on the device"),
        (row.host, "in host memory"),
        (row.storage, "in storage, which its prefetch brought to host"),
    ]
    parts = [part for part in parts if part[0]]
    if len(parts) == 1:
        return f"It hit {row.hit_tokens:,} tokens, all {parts[0][1]}."
    *most, last = [f"{tokens:,} {where}" for tokens, where in parts]
    return f"It hit {row.hit_tokens:,} tokens: {', '.join(most)} and {last}."


def _missing(
    paged: Paged, history: History, job: Job, row: Row, result: RequestResult | None
) -> list[str]:
    """Why it did not hit more."""
    miss = history.misses[job.index]
    computed = f"{row.input_tokens - row.hit_tokens:,} tokens were computed"
    which = "The other" if row.hit_tokens else "All"
    if miss.ended_by == COMPLETE:
        return ["Nothing that it could reuse was missing."]
    if miss.ended_by == FIRST_SEEN:
        return [f"{which} {computed}: no earlier request has them."]
    if miss.ended_by == TOO_LARGE:
        return [f"{computed}: the device cannot hold it, so it did without the cache."]
    where = f"The page after token {miss.hit_pages * paged.page_size:,}"
    why = {
        NOT_READY: _not_ready(paged, job, miss),
        OTHER_REPLICA: "was computed on other replicas only, to which the router sent it",
        NOT_LOADED: "is in host memory and was not loaded (--load-threshold, --load-quota)",
        TOGETHER: "is known, but no boundary there suits all components",
    }.get(miss.ended_by, f"is known, but {miss.ended_by} had nothing to continue from there")
    if miss.ended_by == EVICTED:
        why = _evicted(miss, result)
    told = [f"{where} {why}."]
    if (caps := history.caps.get(job.index)) is not None:
        told += _capped(caps)
    return [*told, f"So {computed}, {row.lost:,} of them for a second time."]


def _capped(caps: Caps) -> list[str]:
    """What each tier had of the page behind the hit, and why storage did not bring it."""
    told = []
    for tier, pools in caps.tiers.items():
        for pool, cap in pools.items():
            whose = "" if len(pools) == 1 else f"{pool} "
            told.append(f"For {whose}{_TIERS[tier]}: {_CAPS[cap]}.")
    if caps.reason:
        told.append(f"Its tokens were lost because: {reason_in_words(caps.reason)}.")
    return told


def _not_ready(paged: Paged, job: Job, miss: Miss) -> str:
    other = _latest_with(paged, job, miss.hit_pages)
    whose = f"request {other}" if other >= 0 else "an earlier request"
    return f"was not in the cache yet: {whose} had still to compute it"


def _evicted(miss: Miss, result: RequestResult | None) -> str:
    if miss.evicted_at in _EMPTIED:
        room = " when the tier was emptied between two rounds"
    elif miss.evicted_for >= 0:
        room = f" to make room for {_OPERATIONS.get(miss.evicted_at, '')}request {miss.evicted_for}"
    else:
        room = " when a copy ended"
    tier = "host memory" if miss.from_host else "the device"
    if result is None or miss.evicted_ns < 0:
        return f"had been in the cache and was evicted from {tier}, its last tier,{room}"
    ago = _seconds(result.admit_ns - miss.evicted_ns)
    return (
        f"had been in the cache and left {tier}, its last tier, at {_seconds(miss.evicted_ns)}, "
        f"{ago} before this request was admitted,{room}"
    )


def _times(result: RequestResult, history: History) -> list[str]:
    total = result.first_token_ns - result.arrival_ns
    told = [
        f"Its first token came after {_seconds(total)}: {_seconds(result.queue_ns)} waiting for a "
        f"forward pass, {_seconds(result.load_ns)} in passes that waited for loads from host, "
        f"{_seconds(result.compute_ns)} computing."
    ]
    for reason, count in sorted(history.refused.get(result.request, {}).items()):
        times = "once" if count == 1 else f"{count:,} times"
        told.append(f"It was told to wait {times} {_WAITS.get(reason, f'({reason})')}.")
    if result.retractions:
        times = "once" if result.retractions == 1 else f"{result.retractions:,} times"
        told.append(f"It was preempted {times} and computed again.")
    told.append(f"It ended at {_seconds(result.finish_ns)}.")
    return told


def _seconds(time_ns: int) -> str:
    return f"{time_ns / NS_PER_S:,.3f} s"


def _percent(tokens: int, row: Row) -> str:
    return f"{tokens / row.input_tokens:.0%} of its prompt"
