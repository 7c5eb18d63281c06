"""The `--json` document of a replay. Other programs read it: do not rename its keys.

docs/json.md describes every key. Does not print for people; see report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from ..expected.words import document as expected
from ..formats.base import Trace
from ..replaying.account import Share
from ..replaying.run import NS_PER_S, Checks, ComponentUse, Latency, Run, StorageUse
from ..replaying.settings import Settings
from ..replaying.streaming.parts import Streaming
from .components import describe
from .error_bars import expected_of
from .fleet import fleet_document
from .overload import Load
from .slo import limits_document
from .stored import lost_by_reason


def document(trace: Trace, settings: Settings, run: Run) -> dict[str, object]:
    """The results of a replay as JSON values. `latency_s` is present in timed mode only."""
    whole = run.account.whole()
    result: dict[str, object] = {
        "interrupted": run.interrupted,
        "served_requests": whole.requests,
        "trace": {
            "path": trace.path,
            "format": trace.format,
            "requests": len(trace.jobs),
            "input_tokens": trace.jobs.input_tokens,
            "block_size": trace.block_size,
            "identity": trace.identity,
        },
        "skipped": {
            "requests": len(settings.skipped.requests),
            "input_tokens": settings.skipped.input_tokens,
        },
        "uncached": {
            "requests": len(settings.uncached.requests),
            "input_tokens": settings.uncached.input_tokens,
        },
        "config": settings.as_options(),
        "whole": _share(whole),
        "steady": _share(run.account.steady()),
    }
    if run.latency is not None:
        result |= _of_clock(trace, settings, run, run.latency)
    result["refused"] = run.refused
    result["transfers"] = {
        way: {
            "bytes": transfer.bytes,
            "bytes_per_rank": transfer.bytes // settings.parallelism.attention_dp,
            "bytes_total": transfer.bytes * settings.page_ranks,
            "busy_s": None if transfer.busy_ns is None else transfer.busy_ns / NS_PER_S,
        }
        for way, transfer in run.transfers.items()
    }
    if run.storage is not None:
        result["storage"] = _storage(settings, run, run.storage)
    result["evicted_pages"] = {"device": run.evicted[0], "host": run.evicted[1]}
    result["components"] = uses = {
        use.name: _component(use, settings.page_ranks) for use in run.components
    }
    if len(run.components) > 1:
        for use in run.components:
            uses[use.name] |= {"most_in_use": use.peak_pages, "evicted_along": use.evicted_along}
        result["lookups"] = list(_lookups(settings, run))
    if run.turns:
        result["turns_from"] = run.turns_from
        result["turns"] = [asdict(turn) | {"hit_rate": turn.hit_rate} for turn in run.turns]
    if run.compared is not None:
        order, whole, steady = run.compared
        result["compared"] = {
            "eviction_policy": order,
            "whole": _share(whole),
            "steady": _share(steady),
        }
    if run.streaming is not None:
        result["streaming"] = _streaming(run.streaming)
    result["checks"] = _checks(run.checks)
    if run.fleet is not None:
        result["fleet"] = fleet_document(run.fleet)
    result["digest"] = run.digest
    result["wall_s"] = round(run.wall_s, 3)
    return result


def _checks(checks: Checks) -> dict[str, object]:
    return {
        "level": checks.level,
        "operations": checks.operations,
        "incremental": checks.incremental,
        "full": checks.full,
        "violations": checks.violations,
        "byte_checks": checks.byte_checks,
        "access_checks": checks.access_checks,
        "specified": checks.specified,
        "not_judged": checks.unjudged,
    }


def _streaming(streaming: Streaming) -> dict[str, object]:
    return {
        "ceiling_exact": streaming.remembered,
        "percentiles_exact": streaming.exact,
        "group_requests": streaming.group,
        "part_requests": streaming.parts.requests,
        "cpu_s": streaming.parts.cpu_s,
        "peak_bytes": streaming.parts.peak_bytes,
    }


def load_document(load: Load) -> dict[str, object]:
    return {
        "offered": load.offered or None,
        "queueing_share": load.queueing,
        "overloaded": load.overloaded,
    }


def _storage(settings: Settings, run: Run, use: StorageUse) -> dict[str, object]:
    size, prefetches = settings.core.page_size, use.prefetches
    ways = (("read", use.read, use.read_ends), ("written", use.written, use.written_ends))
    return {
        "prefetches": {
            "begun": prefetches.begun,
            "ended": {
                reason: {
                    "requests": ended.requests,
                    "asked_tokens": ended.asked_pages * size,
                    "found_tokens": ended.found_pages * size,
                    "fetched_tokens": ended.fetched_pages * size,
                }
                for reason, ended in prefetches.ended.items()
            },
        },
        "stores": prefetches.stores,
        **{
            way: {
                "bytes_total": moved.bytes,
                "busy_s": None if moved.busy_ns is None else moved.busy_ns / NS_PER_S,
                "values": dict(ends),
            }
            for way, moved, ends in ways
        },
        "losses": asdict(use.losses),
        "evicted_values": use.evicted,
        "lost_tokens": {
            reason: {"requests": requests, "tokens": tokens}
            for reason, (requests, tokens) in lost_by_reason(run).items()
        },
    }


def _of_clock(trace: Trace, settings: Settings, run: Run, latency: Latency) -> dict[str, object]:
    """The keys of a run with a clock."""
    result: dict[str, object] = {
        "latency_s": _latency(latency),
        "output": {"tokens": latency.generated_tokens, "tokens_per_s": latency.tokens_per_s},
    }
    if settings.slo is not None:
        result["slo"] = limits_document(trace, settings.slo, latency)
    result["times_from"] = settings.time_model.label
    result["expected_error"] = expected(expected_of(settings, run, latency))
    return result | {"preempted": run.preempted}


def _latency(latency: Latency) -> dict[str, object]:
    return {
        **{name: asdict(times) for name, times in latency.spreads.items()},
        "makespan": latency.makespan_ns / NS_PER_S,
    }


def _share(share: Share) -> dict[str, object]:
    return {
        "requests": share.requests,
        "input_tokens": share.input_tokens,
        "hit_tokens": {"device": share.device, "host": share.host, "storage": share.storage},
        "computed_tokens": share.computed_tokens,
        "hit_rate": share.hit_rate,
        "hit_rate_pages": share.block_rate,
        "hit_rate_mean": share.mean_rate,
        "ceiling_tokens": share.ceiling,
        "ceiling_rate": share.rate(share.ceiling),
        "first_seen_tokens": share.first_seen,
        "lost_tokens": share.lost,
    }


def _component(use: ComponentUse, tp: int) -> dict[str, object]:
    """`page_bytes` is the figure of one rank, under the name of the first version."""
    tiers = ("device", "host")

    def pair(values: tuple[int, int] | None) -> dict[str, int] | None:
        return None if values is None else dict(zip(tiers, values, strict=True))

    return {
        "page_bytes": use.page_bytes,
        "page_bytes_per_rank": use.page_bytes,
        "page_bytes_total": use.page_bytes * tp,
        "capacity": pair(use.capacity),
        "pool_bytes_per_rank": pair(_times(use.capacity, use.page_bytes)),
        "pool_bytes_total": pair(_times(use.capacity, use.page_bytes * tp)),
        "backed_up": use.backed_up,
        "loaded": use.loaded,
        "evicted": pair(use.evicted),
        "cached_at_rest": pair(use.cached),
        "garbage_at_rest": pair(use.garbage),
    }


def _times(pages: tuple[int, int], size: int) -> tuple[int, int]:
    return pages[0] * size, pages[1] * size


def _lookups(settings: Settings, run: Run) -> Iterator[dict[str, object]]:
    """Depths and hits in tokens, by request number."""
    size, names = settings.core.page_size, run.lookups.components
    for index in sorted(run.lookups.by_request):
        row = run.lookups.by_request[index]
        yield {
            "request": index,
            "wanted": row.wanted * size,
            "device": row.device * size,
            "host": row.host * size,
            "depths": {name: depth * size for name, depth in zip(names, row.depths, strict=True)},
            "capped_by": row.cap,
            "because": describe(settings, row),
        }
