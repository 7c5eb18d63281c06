"""Storage is attached, detached and emptied while requests wait and transfers are under way.

What the cache believes of a storage holds for the time in which it is attached. Transfers that
began before a detachment or a flush go on, for nobody; their replies set free what they use.
"""

from hicache.core.actions import Delete, PrefetchEnd, StorageDetached

from . import prefetching
from .cache import Cache
from .refusals import say_refused


def begin(cache: Cache) -> None:
    """Storage can be used. It may be another one, so nothing is believed of it."""
    if not cache.attached and cache.storage:
        say_refused(cache, "detaching", len(cache.storage), 0, after=min(cache.storage))
        return
    cache.attached = True
    _believe_nothing(cache)
    for transfer in cache.storage.values():
        transfer.outdated = True


def stop(cache: Cache) -> None:
    cache.attached = False
    _believe_nothing(cache)
    _tell_waiters(cache, "detached")
    for transfer in cache.storage.values():
        prefetching.give_up(cache, transfer)
    say_when_unused(cache)


def say_when_unused(cache: Cache) -> None:
    """With the last reply after a detachment, storage is not used any more."""
    if not cache.attached and not cache.storage:
        cache.say(StorageDetached())


def forget_tree(cache: Cache) -> None:
    """The tree is forgotten. What storage says of it from now on is of no use."""
    _believe_nothing(cache)
    _tell_waiters(cache, "flushed")
    for transfer in cache.in_flight("lookup", "fetch", "store"):
        prefetching.give_up(cache, transfer)
        transfer.hold, transfer.flushed = set(), True


def empty(cache: Cache) -> None:
    """Deletes everything from storage. Until the reply nothing is looked up or stored."""
    if cache.attached:
        cache.say(Delete(cache.begin_storage("delete").number))


def _believe_nothing(cache: Cache) -> None:
    cache.believed, cache.distrusted, cache.to_store = set(), [], []


def _tell_waiters(cache: Cache, reason: PrefetchEnd) -> None:
    for request in cache.requests.values():
        if request.prefetch is not None:
            prefetching.tell(cache, request, request.prefetch, 0, reason)
            request.prefetch = None
