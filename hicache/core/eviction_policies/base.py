"""What an eviction policy is: the order in which a pool gives up what nobody uses.

An entry of this folder defines `policy()`, which makes one. A policy declares its order as data
beside the code that computes it: the checks derive the same order from their own books and compare
every victim with it. Must not live here: the queues (radix/lru) or the choice of a victim
(eviction, reclaim).
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from ..radix.node import Node

TICK_BITS = 48
Fact = Literal["last_use", "inserted", "hits", "priority"]


class Facts(NamedTuple):
    """What an order can be made of, for one node and one component.

    last_use   tick of the last event that used the component at this node.
    inserted   tick at which the node came into the tree; a split leaves it as it is.
    hits       requests that used the node.
    priority   the highest priority among the requests that used the node.
    """

    last_use: int
    inserted: int
    hits: int
    priority: int


class Term(NamedTuple):
    """One fact that an order compares. Values above `most` count as `most`."""

    fact: Fact
    most: int = 1 << 62


class EvictionPolicy(Protocol):
    """The lowest rank goes first; of equal ranks the deeper node.

    whole_path   whether a hit is a use of the whole path, or of what its boundary requires.
    order        the facts that the rank stands for, compared in turn. Empty: not declared.
    rank         a number for a node's copy of a component. It must only grow from one event to the
                 next (the queues rely on it, see radix/lru), as each fact in `Facts` does.

    A policy whose order no list of facts can tell may have a method `reference(facts: Facts)`
    that returns a tuple of integers instead. With neither, checks do not judge its order.
    """

    @property
    def name(self) -> str: ...

    @property
    def whole_path(self) -> bool: ...

    @property
    def order(self) -> tuple[Term, ...]: ...

    def rank(self, node: Node, component: int) -> int: ...


def before(first: int, tick: int) -> int:
    """A rank that compares `first`, and then a tick."""
    return (first << TICK_BITS) + tick
