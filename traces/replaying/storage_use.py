"""The contents of a store for the time of a replay, and what the replay moved to and from it.

Does not define the store (see storage and sim/storage) or its options.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager

from hicache.storage.base import Status
from sim.replica import LinkUse, TimedResult
from sim.storage.contents import Contents
from sim.storage.executor import StoreExecutor

from .following.caps import Asked
from .following.prefetches import Prefetches
from .run import StorageUse, Transfer
from .settings import Settings


@contextmanager
def opened(settings: Settings) -> Iterator[Contents | None]:
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


def asked_of(store: StoreExecutor) -> Asked:
    """What the store can say about pages that it did not deliver."""
    return Asked(store.moved.short.get, store.contents.fate)


def use_of(
    settings: Settings,
    prefetches: Prefetches,
    store: StoreExecutor,
    reads: LinkUse | None = None,
    writes: LinkUse | None = None,
) -> StorageUse:
    """What a run moved. reads, writes: None without a clock."""
    moved = store.moved
    return StorageUse(
        prefetches,
        _transfer(settings, moved.read, reads),
        _transfer(settings, moved.written, writes),
        _ends(moved.read),
        _ends(moved.written),
        moved.losses + store.contents.losses,
        store.contents.evicted,
    )


def use_of_all(
    settings: Settings,
    prefetches: Prefetches,
    stores: Sequence[StoreExecutor],
    parts: Sequence[TimedResult] = (),
) -> StorageUse | None:
    """What several replicas moved together to and from the one store that they share; None without
    storage. parts: their results, if there was a clock."""
    if not stores:
        return None
    each = [
        use_of(settings, prefetches, store, *(_links(parts[place]) if parts else ()))
        for place, store in enumerate(stores)
    ]
    return StorageUse(
        prefetches,
        _sum([one.read for one in each]),
        _sum([one.written for one in each]),
        sum((Counter(one.read_ends) for one in each), Counter[str]()),
        sum((Counter(one.written_ends) for one in each), Counter[str]()),
        sum((store.moved.losses for store in stores), stores[0].contents.losses),
        stores[0].contents.evicted,
    )


def _links(part: TimedResult) -> tuple[LinkUse | None, LinkUse | None]:
    return part.reads, part.writes


def _sum(moved: Sequence[Transfer]) -> Transfer:
    busy = [one.busy_ns for one in moved if one.busy_ns is not None]
    return Transfer(sum(one.bytes for one in moved), sum(busy) if busy else None)


def _transfer(
    settings: Settings, found: Mapping[str, Counter[Status]], use: LinkUse | None
) -> Transfer:
    sizes = settings.value_bytes
    count = sum(ends[Status.DONE] * sizes[name] for name, ends in found.items())
    return Transfer(count, None if use is None else use.busy_ns)


def _ends(found: Mapping[str, Counter[Status]]) -> dict[str, int]:
    """Values by what became of them, those of all components together."""
    ends: Counter[str] = Counter()
    for statuses in found.values():
        ends.update({str(status): count for status, count in statuses.items()})
    return dict(ends)
