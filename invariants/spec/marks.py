"""What happens to a node that some eviction policies ask for: its insertion, its visits, its cost.

A kind of attention is as *old* as the highest rank of its copies that left the device. What an
event evicts makes it older for the events after it.
"""

from __future__ import annotations

from .cache import Cache
from .kinds import FULL
from .records import Node

MOST_CHANCES = 3  # s3_fifo
POSITIONS = 1024  # tokens to which the cost by position applies


def begin_event(cache: Cache) -> None:
    """What was evicted until now makes its kind older, for what follows."""
    cache.ages = list(cache.next_ages)
    cache.turn += 1
    cache.newest_before = cache.newest


def inserted(cache: Cache, node: Node) -> None:
    """A node is new in the tree."""
    node.inserted = cache.tick
    node.age, node.place = list(cache.ages), [cache.turn] * len(cache.kinds)
    node.cost = cost_at(cache, node.end)
    node.earlier, cache.newest = cache.newest_before, cache.tick


def cost_at(cache: Cache, depth: int) -> list[int]:
    """By kind, what it costs to compute the page that ends at this depth again, and for a state all
    pages up to it: so much for each token, and more for those far from the beginning."""
    config, tokens = cache.config, depth * cache.config.page_size
    page = config.recompute_token_cost + config.recompute_position_cost * tokens // POSITIONS
    return [page if one.per_page else page * depth for one in cache.kinds]


def visited(cache: Cache, nodes: list[Node], ends: list[int]) -> None:
    """A request uses nodes that others inserted: full attention, and of the other kinds what one of
    these boundaries requires."""
    for node in nodes:
        for kind, one in enumerate(cache.kinds):
            if kind == FULL or any(0 <= end - node.end < one.window for end in ends):
                node.visits[kind] += 1
                node.age[kind] = cache.ages[kind]
                node.chances[kind] = min(MOST_CHANCES, node.chances[kind] + 1)


def grow_older(cache: Cache, node: Node, kind: int) -> None:
    """A copy of the kind is evicted from device."""
    cache.next_ages[kind] = max(cache.next_ages[kind], cache.rank(node, kind))


def split(cache: Cache, upper: Node, node: Node) -> None:
    """Both halves have what the node had; what the upper one costs depends on its own end."""
    upper.visits, upper.age = list(node.visits), list(node.age)
    upper.cost = cost_at(cache, upper.end)
    upper.place, upper.chances = list(node.place), list(node.chances)
    upper.main, upper.earlier = list(node.main), node.earlier
