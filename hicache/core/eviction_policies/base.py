"""The interface of an eviction policy: the order in which unlocked copies of a pool are evicted.

An entry of this folder defines `policy()`, which returns a policy. A policy computes its order and
also declares it as data. The checks derive the declared order from their own books and compare
every victim with it. Does not keep queues, see `radix/lru`, or evict, see `eviction` and `reclaim`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from ..radix.node import Node

TICK_BITS = 48
Fact = Literal["last_use", "inserted", "hits", "priority"]


class Facts(NamedTuple):
    """The facts about one node and one component that an order can use.

    last_use   tick of the last event that used the component at this node.
    inserted   tick at which the node was inserted into the tree; a split does not change it.
    hits       requests that used the node.
    priority   the highest priority among the requests that used the node.
    """

    last_use: int
    inserted: int
    hits: int
    priority: int


class Term(NamedTuple):
    """One fact that an order compares. A value above `most` counts as `most`."""

    fact: Fact
    most: int = 1 << 62


class EvictionPolicy(Protocol):
    """The copy with the lowest rank is evicted first; of equal ranks, that of the deeper node.

    whole_path   whether a hit uses every component on the whole path, or only what its boundary
                 requires.
    order        the facts that determine the rank, compared in turn. Empty: not declared.
    rank         a number for a node's copy of a component. It must never fall from one event to the
                 next (the queues rely on this, see radix/lru); no fact in `Facts` ever falls.

    If a list of facts cannot express the order, a policy may instead have a method
    `reference(facts: Facts)` that returns a tuple of integers. With neither, the checks do not
    check its order.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole_path(self) -> bool: ...

    @property
    def order(self) -> tuple[Term, ...]: ...

    def rank(self, node: Node, component: int) -> int: ...


def before(first: int, tick: int) -> int:
    """A rank that orders by `first`, and then by a tick."""
    return (first << TICK_BITS) + tick
