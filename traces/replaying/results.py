"""The `--json` document. Other tools read it: the names below are kept.

Must not live here: anything for people (traces/replaying/report).
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
    """Everything a script may want of a replay. latency_s only where there was a clock."""
    found: dict[str, object] = {
        "trace": {
            "path": trace.path,
            "format": trace.format,
            "requests": len(trace.jobs),
            "input_tokens": sum(job.input_length for job in trace.jobs),
            "block_size": trace.block_size,
        },
        "config": settings.as_options(),
        "whole": _share(run.account.whole()),
        "steady": _share(run.account.steady()),
    }
    if run.latency is not None:
        found["latency_s"] = {
            "ttft": _spread(spread(run.latency.ttft_ns)),
            "tpot": _spread(spread(run.latency.tpot_ns)),
            "makespan": run.latency.makespan_ns / NS_PER_S,
        }
    found["transfers"] = {
        way: {
            "bytes": transfer.bytes,
            "busy_s": None if transfer.busy_ns is None else transfer.busy_ns / NS_PER_S,
        }
        for way, transfer in run.transfers.items()
    }
    found["evicted_pages"] = {"device": run.evicted[0], "host": run.evicted[1]}
    found["components"] = uses = {use.name: _component(use) for use in run.components}
    if len(run.components) > 1:
        for use in run.components:
            uses[use.name] |= {"most_in_use": use.most, "evicted_along": use.along}
        found["lookups"] = list(_lookups(settings, run))
    if run.turns:
        found["turns"] = [asdict(turn) | {"hit_rate": turn.hit_rate} for turn in run.turns]
    if run.compared is not None:
        order, whole, steady = run.compared
        found["compared"] = {
            "eviction_policy": order,
            "whole": _share(whole),
            "steady": _share(steady),
        }
    found["checks"] = {
        "level": run.checks.level,
        "operations": run.checks.operations,
        "incremental": run.checks.incremental,
        "full": run.checks.full,
        "violations": run.checks.violations,
        "not_judged": run.checks.unjudged,
    }
    found["digest"] = run.digest
    found["wall_s"] = round(run.wall_s, 3)
    return found


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
    """Depths and hits in tokens, in order of request."""
    size, names = settings.core.page_size, run.lookups.components
    for index in sorted(run.lookups.found):
        row = run.lookups.found[index]
        yield {
            "request": index,
            "wanted": row.wanted * size,
            "device": row.device * size,
            "host": row.host * size,
            "depths": {name: depth * size for name, depth in zip(names, row.depths, strict=True)},
            "capped_by": row.cap,
            "because": describe(settings, row),
        }


def _spread(found: Spread) -> dict[str, float]:
    return {"mean": found.mean, "p50": found.p50, "p90": found.p90, "p99": found.p99}
