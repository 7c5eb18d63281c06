"""The interface of an eviction policy: the order in which unlocked copies of a pool are evicted.

An entry of this folder defines `policy()`, which returns a policy. A policy computes its order and
also declares it as data. The specification evicts by the declared order, and every victim must be
the same. Does not keep queues, see `radix/lru`, or evict, see `eviction` and `reclaim`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from ..radix.node import Node
from ..types import BACKBONE

TICK_BITS = 48
Fact = Literal[
    "last_use", "inserted", "hits", "priority", "visits", "age", "cost", "earlier", "depth"
]
_OF_MARKS = ("visits", "age", "cost", "earlier")


class Facts(NamedTuple):
    """The facts about one node and one component that an order can use.

    last_use   tick of the last event that used the component at this node.
    inserted   tick at which the node was inserted into the tree; a split does not change it.
    hits       requests that used the node.
    priority   the highest priority among the requests that used the node.
    visits     requests that used the component at this node, without the one that inserted it.
    age        the age of the component at its last visit, or at its insertion if nobody visited it.
               The age of a component is the highest rank of its copies that were evicted from the
               device before the event: the *hand* of CLOCK and SIEVE, the *inflation* of GDSF.
    cost       what it costs to compute the last page of the node again, or for a state all pages
               up to it; worked out when the node is inserted or split off (see
               `Config.recompute_token_cost`).
    earlier    tick of the last insertion into the tree before its own.
    depth      of a window or a state, the pages before the node; 0 of full attention, of which only
               leaves can be evicted. A split keeps the lower half, so it never falls.
    """

    last_use: int
    inserted: int
    hits: int
    priority: int
    visits: int = 0
    age: int = 0
    cost: int = 0
    earlier: int = 0
    depth: int = 0


class Term(NamedTuple):
    """One fact that an order compares. A value above `most` counts as `most`."""

    fact: Fact
    most: int = 1 << 62


class SecondChance(NamedTuple):
    """The two queues of a policy that gives second chances on the device, instead of one order.

    A copy comes into *small* at the end of the queue, or into *main* if the ghost knows its first
    page. Victims are taken from the front of small while it has at least `small_percent` of the
    pool's pages, and else from the front of main; from the other queue if one has no candidate.
    A copy at the front of small with at least `visits_to_main` chances goes to the end of main
    instead, without chances; one at the front of main with a chance goes to its end, with one
    less. A visit is a chance, and a copy has at most `most_chances`. The ghost remembers the
    digests of pages that were evicted out of small, the last `ghost_percent` of the pool's pages.

    On host, where nobody visits a copy, the one that came first to the end of a queue goes first.
    """

    small_percent: int
    visits_to_main: int
    most_chances: int
    ghost_percent: int


class EvictionPolicy(Protocol):
    """The copy with the lowest rank is evicted first; of equal ranks, that of the deeper node.

    whole_path   whether a hit uses every component on the whole path, or only what its boundary
                 requires.
    order        the facts that determine the rank, compared in turn. Empty: not declared.
    rank         a number for a node's copy of a component. It must never fall from one event to the
                 next (the queues rely on this, see radix/lru); no fact in `Facts` ever falls.

    If a list of facts cannot express the order, a policy may instead have a method
    `reference(facts: Facts)` that returns a tuple of integers. With neither, the specification
    does not run. With `marks = True`, or one of visits, age and cost in `order`, the core keeps
    these facts for it (`node.marks`). It may also have `second_chance`, a `SecondChance`; its rank
    is then `node.marks.place[component]`.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole_path(self) -> bool: ...

    @property
    def order(self) -> tuple[Term, ...]: ...

    def rank(self, node: Node, component: int) -> int: ...


def before(first: int, tick: int) -> int:
    """A rank that orders by `first`, and then by a tick or a depth."""
    return (first << TICK_BITS) + tick


def depth(node: Node, component: int) -> int:
    """The fact of this name."""
    above = node.parent
    return 0 if component == BACKBONE or above is None else above.end_page


def second_chance_of(policy: EvictionPolicy) -> SecondChance | None:
    """The two queues that the policy declares, or None."""
    found: SecondChance | None = getattr(policy, "second_chance", None)
    return found


def asks_for_marks(policy: EvictionPolicy) -> bool:
    """Whether the policy uses facts that the core keeps only for policies that do."""
    order: tuple[Term, ...] = getattr(policy, "order", ())
    return (
        second_chance_of(policy) is not None
        or getattr(policy, "marks", False) is True
        or any(term.fact in _OF_MARKS for term in order)
    )
