"""Takes the second victim of an eviction queue instead of the first, for planted bugs.

Lives here: the one function that several bugs share. Does not patch anything.
"""

from __future__ import annotations

from heapq import heappush
from typing import Any

from hicache.core.radix import lru

_next_victim = lru.next_victim


def second_victim(queues: list[Any], policy: Any) -> Any:
    """The second victim of these queues; the first stays. The first if there is no other."""
    first: Any = _next_victim(queues, policy)
    second = _next_victim(queues, policy) if first is not None else None
    if second is None:
        return first
    for queue in queues:
        if lru.is_candidate(first, queue):
            garbage = lru.is_garbage(first, queue.window_pages)
            first.queued |= queue.bits[garbage]
            rank = policy.rank(first, queue.component)
            heappush(queue.heaps[garbage], (rank, -first.end_page, first.id, first))
    return second
