"""What happens to a node that some eviction policies ask for: its insertion and its visits.

A kind of attention is as *old* as the highest rank of its copies that left the device. What an
event evicts makes it older for the events after it.
"""

from __future__ import annotations

from .cache import Cache
from .records import Node


def now_older(cache: Cache) -> None:
    """What was evicted until now makes its kind older, for what follows."""
    cache.ages = list(cache.next_ages)
    cache.turn += 1
    cache.newest_before = cache.newest


def new_node(cache: Cache, node: Node) -> None:
    """A node is new in the tree."""
    node.inserted = cache.tick
    node.age, node.place = list(cache.ages), [cache.turn] * len(cache.kinds)
    node.earlier, cache.newest = cache.newest_before, cache.tick


def visited(cache: Cache, nodes: list[Node], ends: list[int]) -> None:
    """A request uses nodes that others inserted: full attention, and of the other kinds what one of
    these boundaries requires."""
    most = cache.order.queues.most_chances if cache.order.queues else 0
    for node in nodes:
        for kind in range(len(cache.kinds)):
            if is_used(cache, node, kind, ends):
                node.visits[kind] += 1
                node.age[kind] = cache.ages[kind]
                node.chances[kind] = min(most, node.chances[kind] + 1)


def is_used(cache: Cache, node: Node, kind: int, ends: list[int]) -> bool:
    """Whether a use of these boundaries at or below the node is one of its copy of this kind."""
    return cache.order.whole_path or any(
        0 <= end - node.end < cache.kinds[kind].window for end in ends
    )


def grow_older(cache: Cache, node: Node, kind: int) -> None:
    """A copy of the kind is evicted from device."""
    cache.next_ages[kind] = max(cache.next_ages[kind], cache.rank(node, kind))


def both_halves(half: Node, node: Node) -> None:
    """Both halves have what the node had."""
    half.visits, half.age = list(node.visits), list(node.age)
    half.place, half.chances = list(node.place), list(node.chances)
    half.main, half.earlier = list(node.main), node.earlier
