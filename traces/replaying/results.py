"""The `--json` document of a replay. Other programs read it: do not rename its keys.

Does not print for people; see report.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from ..formats.base import Trace
from .account import Share
from .components import describe
from .run import NS_PER_S, ComponentUse, Run, Spread, spread
from .settings import Settings


def document(trace: Trace, settings: Settings, run: Run) -> dict[str, object]:
    """The results of a replay as JSON values. `latency_s` is present in timed mode only."""
    result: dict[str, object] = {
        "trace": {
            "path": trace.path,
            "format": trace.format,
            "requests": len(trace.jobs),
            "input_tokens": trace.jobs.input_tokens,
            "block_size": trace.block_size,
        },
        "config": settings.as_options(),
        "whole": _share(run.account.whole()),
        "steady": _share(run.account.steady()),
    }
    if run.latency is not None:
        result["latency_s"] = {
            "ttft": _spread(spread(run.latency.ttft_ns)),
            "tpot": _spread(spread(run.latency.tpot_ns)),
            "makespan": run.latency.makespan_ns / NS_PER_S,
        }
    result["transfers"] = {
        way: {
            "bytes": transfer.bytes,
            "busy_s": None if transfer.busy_ns is None else transfer.busy_ns / NS_PER_S,
        }
        for way, transfer in run.transfers.items()
    }
    result["evicted_pages"] = {"device": run.evicted[0], "host": run.evicted[1]}
    result["components"] = uses = {use.name: _component(use) for use in run.components}
    if len(run.components) > 1:
        for use in run.components:
            uses[use.name] |= {"most_in_use": use.peak_pages, "evicted_along": use.evicted_along}
        result["lookups"] = list(_lookups(settings, run))
    if run.turns:
        result["turns"] = [asdict(turn) | {"hit_rate": turn.hit_rate} for turn in run.turns]
    if run.compared is not None:
        order, whole, steady = run.compared
        result["compared"] = {
            "eviction_policy": order,
            "whole": _share(whole),
            "steady": _share(steady),
        }
    result["checks"] = {
        "level": run.checks.level,
        "operations": run.checks.operations,
        "incremental": run.checks.incremental,
        "full": run.checks.full,
        "violations": run.checks.violations,
        "not_judged": run.checks.unjudged,
    }
    result["digest"] = run.digest
    result["wall_s"] = round(run.wall_s, 3)
    return result


def _share(share: Share) -> dict[str, object]:
    return {
        "requests": share.requests,
        "input_tokens": share.input_tokens,
        "hit_tokens": {"device": share.device, "host": share.host, "storage": share.storage},
        "computed_tokens": share.computed_tokens,
        "hit_rate": share.hit_rate,
    }


def _component(use: ComponentUse) -> dict[str, object]:
    tiers = ("device", "host")

    def pair(values: tuple[int, int] | None) -> dict[str, int] | None:
        return None if values is None else dict(zip(tiers, values, strict=True))

    return {
        "page_bytes": use.page_bytes,
        "capacity": pair(use.capacity),
        "backed_up": use.backed_up,
        "loaded": use.loaded,
        "evicted": pair(use.evicted),
        "cached_at_rest": pair(use.cached),
        "garbage_at_rest": pair(use.garbage),
    }


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


def _spread(times: Spread) -> dict[str, float]:
    return {"mean": times.mean, "p50": times.p50, "p90": times.p90, "p99": times.p99}
