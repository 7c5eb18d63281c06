"""What a report keeps of a replay that has ended: a variant, and the tree of hot prefixes.

Everything is bounded, whatever the length of the trace. Lost tokens have their reasons, and copies
their times, where the replay was run with `follow`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from msgspec.structs import fields
from numpy.typing import NDArray

from hicache.core.types import Pages

from ..formats.base import Paged, Trace
from ..replaying.account import Account, Row
from ..replaying.config import ReplayConfig
from ..replaying.run import NS_PER_S, Run
from ..replaying.timeline import WAYS, Copies
from ..results.record import (
    QUANTILES,
    Figures,
    MovedOverTime,
    Prefix,
    Prefixes,
    Result,
    Timeline,
    Variant,
)
from .document import FIRST_SEEN, LOST, REQUESTS, TIERS, TIME

_MOST_BUCKETS = 200
_MOST_PREFIXES = 300
NOT_FOLLOWED = "evicted_or_not_ready"  # where nobody followed what became of pages


def collect(
    trace: Trace, settings: ReplayConfig, run: Run, found: Result, label: str = ""
) -> Variant:
    """The variant of a finished replay. found: its figures. label: its name in the report;
    empty for its sizes."""
    latency, lost = run.latency, _lost(run)
    tokens: Counter[str] = Counter()
    for row, reason in lost:
        tokens[reason] += row.lost
    tokens.pop("", None)
    by_reason = dict(sorted(tokens.items(), key=lambda item: (-item[1], item[0])))
    core = settings.core
    host = core.host_pages[0] * settings.host_page_bytes[0] * settings.page_ranks
    sizes = f"host {host / 1e9:,.4g} GB, {core.write_policy}" if host else "no host memory"
    return Variant(
        **{one.name: getattr(found, one.name) for one in fields(Figures)},
        label=label or sizes,
        complete=not run.interrupted,
        lost_by_reason=by_reason,
        ttft_quantiles_s=None if latency is None else _quantiles(latency.ttft_ns),
        tpot_quantiles_s=None if latency is None else _quantiles(latency.tpot_ns),
        timeline=_timeline(len(trace.jobs), run, lost, list(by_reason)),
        moved=None if latency is None or run.copies is None else _moved(run.copies),
    )


def _lost(run: Run) -> list[tuple[Row, str]]:
    """Each served request with the reason of what it lost; empty if it lost nothing."""
    history = run.history
    if history is None:
        return [(row, NOT_FOLLOWED if row.lost else "") for row in run.account.rows()]
    return [(row, history.lost_to(row.request) if row.lost else "") for row in run.account.rows()]


def _quantiles(times_ns: Pages) -> list[float] | None:
    """Observed values, nearest rank; None without observations."""
    if not len(times_ns):
        return None
    points = np.percentile(times_ns, np.linspace(0, 100, QUANTILES), method="inverted_cdf")
    return [float(f"{point / NS_PER_S:.6g}") for point in points]


def _timeline(
    requests: int, run: Run, lost: Sequence[tuple[Row, str]], reasons: Sequence[str]
) -> Timeline:
    if run.latency is None:
        axis, places, bucket = REQUESTS, [row.request for row, _ in lost], _nice(requests)
    else:
        admitted = {one.request: one.admit_ns for one in run.latency.requests}
        axis, places = TIME, [admitted[row.request] for row, _ in lost]
        bucket = _nice(run.latency.makespan_ns)
    which = np.array(places, dtype=np.int64) // bucket
    names = [*TIERS, FIRST_SEEN, *(LOST + reason for reason in reasons)]
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


def _moved(copies: Copies) -> MovedOverTime:
    last = max((times[-1] for times in copies.times_ns.values() if times), default=0)
    bucket, sums = _nice(last + 1), {}
    for way in WAYS:
        counts = np.asarray(copies.bytes[way], dtype=np.int64)
        sums[way] = _sums(np.asarray(copies.times_ns[way], dtype=np.int64) // bucket, counts)
    longest = max(map(len, sums.values()))
    padded = {f"{way}_bytes": one + [0] * (longest - len(one)) for way, one in sums.items()}
    return MovedOverTime(bucket / NS_PER_S, **padded)


def _nice(span: int) -> int:
    """The least width that is 1, 2 or 5 times a power of ten and divides the span into few."""
    widths = (step * 10**power for power in range(30) for step in (1, 2, 5))
    least: int = next(one for one in widths if -(-(span + 1) // one) <= _MOST_BUCKETS)
    return least


# -- hot prefixes


def hot_prefixes(paged: Paged, account: Account | None = None) -> Prefixes:
    """The edges of the tree of all prompts that save most, and all above them. Pages that the same
    requests share are one edge: whole pages of prompts, with those of answers that a later prompt
    repeats. account: of a replay, which says what was hit."""
    # by page: requests that have it, prompts that could reuse it, prompts that hit it, the first
    # request, its place, the page before it
    requests, reusable, hits, first, place, parent = counts = np.zeros((6, 1 << 13), dtype=np.int32)
    hit = {} if account is None else {row.request: row.hit_tokens for row in account.rows()}
    size = paged.page_size
    for job in paged.jobs:
        chain = paged.chain(job)
        if not len(chain):
            continue
        if (least := int(chain.max()) + 1) > counts.shape[1]:
            more = max(counts.shape[1], least - counts.shape[1])
            counts = np.pad(counts, ((0, 0), (0, more)))
            requests, reusable, hits, first, place, parent = counts
        seen = requests[chain] > 0
        known = len(chain) if seen.all() else int(seen.argmin())
        prompt, new = job.input_length // size, chain[known:]
        requests[chain] += 1
        reusable[chain[: min(known, prompt)]] += 1
        hits[chain[: min(prompt, hit.get(job.index, 0) // size)]] += 1
        first[new] = job.index
        place[new] = np.arange(known, len(chain))
        parent[new] = np.concatenate(([-1], chain))[known : len(chain)]
    shared = np.flatnonzero(reusable)
    head = _heads(requests, reusable, parent, shared)
    pages = np.bincount(head[shared], minlength=len(requests))
    hit_pages = np.bincount(head[shared], weights=hits[shared], minlength=len(requests))
    heads = np.flatnonzero(pages)
    saved = reusable[heads].astype(np.int64) * pages[heads]
    above = np.where(parent[heads] < 0, -1, head[parent[heads]])
    value = dict(zip(heads.tolist(), saved.tolist(), strict=True))
    parent_of = dict(zip(heads.tolist(), above.tolist(), strict=True))
    chosen = _chosen(heads[np.lexsort((heads, -saved))].tolist(), value, parent_of)
    number = {page: at for at, page in enumerate(chosen)}
    edges = [
        Prefix(
            id=number[page],
            parent=number.get(parent_of[page], -1),
            end_tokens=int(place[page] + pages[page]) * size,
            tokens=int(pages[page]) * size,
            requests=int(requests[page]),
            reusable_tokens=value[page] * size,
            hit_tokens=None if account is None else int(hit_pages[page]) * size,
            first_request=int(first[page]),
        )
        for page in chosen
    ]
    left = int(saved.sum()) * size - sum(edge.reusable_tokens for edge in edges)
    return Prefixes(size, edges, len(heads) - len(edges), left)


def _heads(
    requests: NDArray[np.int32],
    reusable: NDArray[np.int32],
    parent: NDArray[np.int32],
    shared: NDArray[np.int64],
) -> NDArray[np.int64]:
    """By page, the first page of its edge: pages with the same requests are one edge."""
    head = np.arange(len(requests), dtype=np.int64)
    above = parent[shared]
    same = (requests[shared] == requests[above]) & (reusable[shared] == reusable[above])
    joined = (above >= 0) & same
    head[shared[joined]] = above[joined]
    while not np.array_equal(further := head[head], head):
        head = further
    return head


def _chosen(heads: Sequence[int], value: dict[int, int], parent_of: dict[int, int]) -> list[int]:
    """The edges that save most, with those above them: parents first, the largest first. heads:
    the largest first."""
    kept: set[int] = set()
    for page in heads[: 4 * _MOST_PREFIXES]:
        path = []
        while page >= 0 and page not in kept:
            path.append(page)
            page = parent_of[page]
        if len(kept) + len(path) <= _MOST_PREFIXES:
            kept.update(path)
    below: dict[int, list[int]] = {}
    for page in sorted(kept, key=lambda one: (value[one], -one)):  # the largest last
        below.setdefault(parent_of[page], []).append(page)
    found: list[int] = []
    waiting = below.get(-1, [])
    while waiting:
        found.append(page := waiting.pop())
        waiting += below.get(page, [])
    return found
