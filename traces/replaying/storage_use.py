"""The contents of a store for the time of a replay, and what the replay moved to and from it.

Does not define the store (see storage and sim/storage) or its options.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace

from hicache.storage.base import Status
from sim.replica import LinkUse, TimedResult
from sim.storage.contents import Contents
from sim.storage.executor import StoreExecutor

from ..results.record import Ended, Lost, Moved, PrefetchFigures, Storage
from .account import Prefetches
from .config import ReplayConfig
from .following import History
from .run import NS_PER_S, Run

Ends = Mapping[str, Counter[Status]]


@contextmanager
def opened(settings: ReplayConfig) -> Iterator[Contents | None]:
    """What the store has, open for the time of a `with`; None without storage."""
    storage, core = settings.storage, settings.core
    if storage is None:
        yield None
        return
    contents = storage.open(
        settings.model, core.page_size, settings.value_bytes, settings.page_ranks
    )
    with closing(contents):
        yield contents


def listen(history: History, store: StoreExecutor) -> None:
    """Lets the store say what became of pages that it did not deliver."""
    history.short, history.fate = store.moved.short.get, store.contents.fate


def use_of(
    settings: ReplayConfig,
    prefetches: Prefetches,
    stores: Sequence[StoreExecutor],
    parts: Sequence[TimedResult] = (),
) -> Storage | None:
    """What all replicas moved together to and from the one store that they share; None without
    storage. parts: their results, if there was a clock. What was lost to is added by `with_lost`.
    """
    if not stores:
        return None
    size = settings.core.page_size
    return Storage(
        prefetches=PrefetchFigures(
            prefetches.begun,
            {
                reason: Ended(
                    requests=one.requests,
                    asked_tokens=one.asked_pages * size,
                    found_tokens=one.found_pages * size,
                    fetched_tokens=one.fetched_pages * size,
                )
                for reason, one in prefetches.ended.items()
            },
        ),
        stores=prefetches.stores,
        read=_moved(settings, [one.moved.read for one in stores], [one.reads for one in parts]),
        written=_moved(
            settings, [one.moved.written for one in stores], [one.writes for one in parts]
        ),
        losses=sum((one.moved.losses for one in stores), stores[0].contents.losses),
        evicted_values=stores[0].contents.evicted,
        lost_tokens={},
    )


def _moved(
    settings: ReplayConfig, stores: Sequence[Ends], links: Sequence[LinkUse | None]
) -> Moved:
    sizes, values, moved = settings.value_bytes, Counter[str](), 0
    for found in stores:
        moved += sum(ends[Status.DONE] * sizes[name] for name, ends in found.items())
        for statuses in found.values():
            values.update({str(status): count for status, count in statuses.items()})
    busy = [one.busy_ns for one in links if one is not None]
    return Moved(moved, sum(busy) / NS_PER_S if busy else None, dict(values))


def with_lost(run: Run) -> Run:
    """With the tokens that had been seen before and were not hit, by reason; with storage."""
    history = run.history
    if run.storage is None or history is None:
        return run
    tokens, requests = Counter[str](), Counter[str]()
    for row in run.account.rows():
        if row.lost:
            reason = history.lost_to(row.request)
            tokens[reason] += row.lost
            requests[reason] += 1
    lost = {reason: Lost(requests[reason], lost) for reason, lost in tokens.most_common()}
    return replace(run, storage=replace(run.storage, lost_tokens=lost))
