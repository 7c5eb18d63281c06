"""Bugs in `eviction_policies` and `marks`: the order of victims, and what is known of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache.core.eviction_policies import cost_aware, sieve
from hicache.core.eviction_policies.base import TICK_BITS, before
from hicache.core.eviction_policies.fifo import Fifo
from hicache.core.eviction_policies.lfu import Lfu
from hicache.core.eviction_policies.lru import Lru
from hicache.core.eviction_policies.priority import Priority
from hicache.core.eviction_policies.slru import Slru
from hicache.core.radix import marks

from .base import bug

_rank = sieve.Sieve.rank
_spare = marks._spare
_came = marks.came
_mark_new = marks.mark_new
_mark_split = marks.mark_split
_note_eviction = marks.note_eviction


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


@bug(marks, "mark_new", kills="spec", components=("full",), eviction="sieve")
def insertion_counts_as_a_visit(state: Any, node: Any) -> None:
    """The request that inserts a node counts as one that visits it."""
    _mark_new(state, node)
    node.marks.visits = [1] * len(state.components)


@bug(marks, "mark_split", kills="spec", components=("full",), eviction="sieve")
def split_halves_were_never_visited(state: Any, upper: Any, node: Any) -> None:
    """The upper half of a split node loses its visits."""
    _mark_split(state, upper, node)
    upper.marks.visits = [0] * len(state.components)


@bug(marks, "_set_cost", kills="spec", components=("full",), eviction="cost_aware")
def deep_pages_cost_as_much_as_the_first(state: Any, node: Any) -> None:
    """The cost of computing a page again does not grow with its depth."""
    node.marks.cost = [state.config.recompute_token_cost] * len(state.components)


@bug(marks, "note_eviction", kills="spec", components=("full", "mamba"), eviction="sieve")
def evicted_states_do_not_age(state: Any, node: Any, index: int) -> None:
    """What is evicted moves the hand of full attention only, and not that of states."""
    if index == 0:
        _note_eviction(state, node, index)


@bug(marks, "note_eviction", kills="spec", components=("full",), eviction="sieve")
def hand_of_sieve_stands_still(state: Any, node: Any, index: int) -> None:
    """What is evicted moves no hand, so a second visit counts like the first."""


@bug(marks, "came", kills="spec", components=("full",), eviction="s3_fifo")
def copies_known_to_the_ghost_come_into_small(
    state: Any, node: Any, index: int, pages: int, digests: Sequence[bytes]
) -> None:
    """A copy that the ghost knows comes into the small queue, like one that is new."""
    known, state.chances[index].ghost = state.chances[index].ghost, {}
    _came(state, node, index, pages, digests)
    state.chances[index].ghost = known


@bug(marks, "_spare", kills="spec", components=("full",), eviction="s3_fifo")
def spared_copies_stay_at_the_front(state: Any, node: Any, index: int) -> bool:
    """A copy that is spared loses its chances, and keeps its place in the queue."""
    place = node.marks.place[index]
    spared = _spare(state, node, index)
    node.marks.place[index] = place
    return spared


@bug(marks, "_spare", kills="spec", components=("full",), eviction="s3_fifo")
def spared_copies_still_count_as_small(state: Any, node: Any, index: int) -> bool:
    """A copy that goes to the main queue still counts among the pages of the small one."""
    small = state.chances[index].small_pages
    spared = _spare(state, node, index)
    state.chances[index].small_pages = small
    return spared


@bug(marks, "_spare", kills="spec", components=("full",), eviction="s3_fifo")
def visited_copies_get_no_second_chance(state: Any, node: Any, index: int) -> bool:
    """A copy at the front of a queue goes, however often it was visited."""
    return False
