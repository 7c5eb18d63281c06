"""Bugs in `eviction_policies`: the order of victims."""

from __future__ import annotations

from typing import Any

from hicache.core.eviction_policies import cost_aware, sieve
from hicache.core.eviction_policies.base import TICK_BITS, before
from hicache.core.eviction_policies.fifo import Fifo
from hicache.core.eviction_policies.lfu import Lfu
from hicache.core.eviction_policies.lru import Lru
from hicache.core.eviction_policies.priority import Priority
from hicache.core.eviction_policies.slru import Slru

from .base import bug

_rank = sieve.Sieve.rank


@bug(
    cost_aware.CostAware, "rank", kills="spec", components=("full", "mamba"), eviction="cost_aware"
)
def uses_do_not_raise_a_cost(policy: Any, node: Any, component: int) -> int:
    """A copy that was used often is worth no more than one that was used once."""
    marks = node.marks
    worth = (marks.age[component] >> TICK_BITS) + marks.cost[component]
    return before(worth, node.last_use[component])


@bug(Fifo, "rank", kills="spec", eviction="fifo")
def fifo_counts_a_hit_as_an_arrival(self: Fifo, node: Any, component: int) -> int:
    """Under fifo a hit makes a node as young as one that has just come."""
    return int(node.last_use[component])


@bug(Lfu, "rank", kills="spec", eviction="lfu")
def lfu_counts_no_further_than_two(self: Lfu, node: Any, component: int) -> int:
    """Under lfu a node that ten requests used counts as one that two used."""
    return before(min(node.hits, 2), node.last_use[component])


@bug(Lru, "rank", rows=("K2",), kills="lru")
def most_recently_used_is_evicted_first(self: Lru, node: Any, component: int) -> int:
    """The most recently used copy is evicted first."""
    return -int(node.last_use[component])


@bug(Priority, "rank", kills="spec", eviction="priority")
def priority_is_not_looked_at(self: Priority, node: Any, component: int) -> int:
    """Under priority the least recently used node is evicted first, whatever its priority."""
    return int(node.last_use[component])


@bug(sieve.Sieve, "rank", kills="spec", components=("full", "mamba"), eviction="sieve")
def states_go_by_their_last_use(policy: Any, node: Any, component: int) -> int:
    """Within a lap of the hand, states go in the order of their last use."""
    rank = _rank(policy, node, component)
    return before(rank >> TICK_BITS, node.last_use[component]) if component else rank


@bug(Slru, "rank", kills="spec", eviction="slru")
def slru_protects_at_the_first_use(self: Slru, node: Any, component: int) -> int:
    """Under slru a node is protected after its first use, so nothing is on probation."""
    return int(node.last_use[component])
