"""Cost-aware: what is cheap to compute again, for its size, goes first.

Source: GreedyDual-Size-Frequency (Cherkasova, Improving WWW proxies performance with
GreedyDual-Size-Frequency caching policy, HP Labs 1998; after Cao and Irani, USENIX 1997):

    rank = age + uses * cost / size; of equal ranks, what was not used for longest

The age is the highest rank that was evicted before, at the last use: what is not used any more is
overtaken by what comes later. Each component has a pool of its own, in which all pages have one
size, so the cost of one page decides. It grows with the depth of the page, because attention reads
all that comes before (`recompute_token_cost`, `recompute_position_cost`). A state costs all pages
up to it, since they must be computed again to have it.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import TICK_BITS, Facts, before


class CostAware:
    name = "cost_aware"
    whole_path = False
    order = ()
    marks = True

    def rank(self, node: Node, component: int) -> int:
        marks = node.marks
        worth = _worth(marks.visits[component], marks.age[component], marks.cost[component])
        return before(worth, node.last_use[component])

    def reference(self, facts: Facts) -> tuple[int, ...]:
        return _worth(facts.visits, facts.age, facts.cost), facts.last_use


def _worth(visits: int, age: int, cost: int) -> int:
    return (age >> TICK_BITS) + (1 + visits) * cost


def policy() -> CostAware:
    return CostAware()
