"""Makes a variant of a report from a replay that has ended: quantiles and series over time.

Everything is bounded, whatever the length of the trace. Lost tokens have their reasons, and copies
their times, where the replay was run with `follow`. Does not draw; see render.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Pages

from ..formats.base import Trace
from ..replaying.account import Row
from ..replaying.following.caps import lost_to
from ..replaying.following.copies import WAYS, Copies
from ..replaying.run import NS_PER_S, Run
from ..replaying.settings import Settings
from ..results.record import Figures, Result
from .document import (
    FIRST_SEEN,
    LOST,
    MOST_BUCKETS,
    QUANTILES,
    REQUESTS,
    TIERS,
    TIME,
    Moved,
    Timeline,
    Variant,
)

NOT_FOLLOWED = "evicted_or_not_ready"  # where nobody followed what became of pages
_STEPS = (1, 2, 5)


def collect(trace: Trace, settings: Settings, run: Run, found: Result, label: str = "") -> Variant:
    """The variant of a finished replay. found: its figures. label: its name in the report;
    empty for its sizes."""
    latency, lost = run.latency, _lost(run)
    return Variant(
        **{one.name: getattr(found, one.name) for one in fields(Figures)},
        label=label or _label(settings),
        complete=not run.interrupted,
        lost_by_reason=_by_reason(lost),
        ttft_quantiles_s=None if latency is None else _quantiles(latency.ttft_ns),
        tpot_quantiles_s=None if latency is None else _quantiles(latency.tpot_ns),
        timeline=_timeline(len(trace.jobs), run, lost),
        moved=None if latency is None or run.copies is None else _moved(run.copies),
    )


def _label(settings: Settings) -> str:
    core = settings.core
    host = core.host_pages[0] * settings.host_page_bytes[0] * settings.page_ranks
    return f"host {host / 1e9:,.4g} GB, {core.write_policy}" if host else "no host memory"


def _lost(run: Run) -> list[tuple[Row, str]]:
    """Each served request with the reason of what it lost; empty if it lost nothing."""
    history = run.history
    if history is None:
        return [(row, NOT_FOLLOWED if row.lost else "") for row in run.account.rows()]
    misses, capped = history.misses, history.caps
    return [
        (row, lost_to(row.request, lambda one: misses[one].ended_by, capped) if row.lost else "")
        for row in run.account.rows()
    ]


def _by_reason(lost: Sequence[tuple[Row, str]]) -> dict[str, int]:
    """Tokens, the largest reason first."""
    found: dict[str, int] = {}
    for row, reason in lost:
        if reason:
            found[reason] = found.get(reason, 0) + row.lost
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _quantiles(times_ns: Pages) -> list[float] | None:
    """Observed values, nearest rank; None without observations."""
    if not len(times_ns):
        return None
    points = np.percentile(times_ns, np.linspace(0, 100, QUANTILES), method="inverted_cdf")
    return [float(f"{point / NS_PER_S:.6g}") for point in points]


def _timeline(requests: int, run: Run, lost: Sequence[tuple[Row, str]]) -> Timeline:
    if run.latency is None:
        axis, places = REQUESTS, [row.request for row, _ in lost]
        bucket = _nice(requests)
    else:
        axis, admitted = TIME, {one.request: one.admit_ns for one in run.latency.requests}
        places = [admitted[row.request] for row, _ in lost]
        bucket = _nice(run.latency.makespan_ns)
    which = np.array(places, dtype=np.int64) // bucket
    names = [*TIERS, FIRST_SEEN, *(LOST + reason for reason in _by_reason(lost))]
    tokens = {name: np.zeros(len(lost), dtype=np.int64) for name in names}
    for place, (row, reason) in enumerate(lost):
        for name, count in zip(TIERS, (row.device, row.host, row.storage), strict=True):
            tokens[name][place] = count
        tokens[FIRST_SEEN][place] = row.input_tokens - row.hit_tokens - row.lost
        if reason:
            tokens[LOST + reason][place] = row.lost
    series = {name: _sums(which, counts) for name, counts in tokens.items()}
    return Timeline(axis, bucket if axis == REQUESTS else bucket / NS_PER_S, series)


def _sums(which: NDArray[np.int64], counts: NDArray[np.int64]) -> list[int]:
    """The sum of the counts in each bucket, up to the last bucket that has one."""
    sums = np.zeros(int(which.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(sums, which, counts)
    return [int(one) for one in sums]


def _moved(copies: Copies) -> Moved:
    last = max((times[-1] for times in copies.times_ns.values() if times), default=0)
    bucket, sums = _nice(last + 1), {}
    for way in WAYS:
        counts = np.asarray(copies.bytes[way], dtype=np.int64)
        sums[way] = _sums(np.asarray(copies.times_ns[way], dtype=np.int64) // bucket, counts)
    longest = max(len(one) for one in sums.values())
    for one in sums.values():
        one += [0] * (longest - len(one))
    return Moved(bucket / NS_PER_S, **{f"{way}_bytes": one for way, one in sums.items()})


def _nice(span: int) -> int:
    """The least width that is 1, 2 or 5 times a power of ten and divides the span into few."""
    power = 1
    while True:
        for step in _STEPS:
            if -(-(span + 1) // (step * power)) <= MOST_BUCKETS:
                return step * power
        power *= 10
