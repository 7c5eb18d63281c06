"""Eviction policies: the order in which unlocked copies of a pool are evicted.

A policy computes its order (`rank`) and also declares it as data (`order`). The specification
evicts by the declared order, and every victim must be the same. Queues: see `lru`.
"""

from typing import Literal, NamedTuple, Protocol

from .node import Node
from .types import BACKBONE

TICK_BITS = 48
PROTECTED = 2  # hits from which on `slru` protects a node
Fact = Literal["last_use", "inserted", "hits", "priority", "depth"]


class Facts(NamedTuple):
    """The facts about one node and one component that an order can use.

    last_use   tick of the last event that used the component at this node.
    inserted   tick at which the node was inserted into the tree; a split does not change it.
    hits       requests that used the node.
    priority   the highest priority among the requests that used the node.
    depth      of a window or a state, the pages before the node; 0 of full attention, of which only
               leaves can be evicted. A split keeps the lower half, so it never falls.
    """

    last_use: int
    inserted: int
    hits: int
    priority: int
    depth: int = 0


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
                 next (the queues rely on this, see lru); no fact in `Facts` ever falls.

    If a list of facts cannot express the order, a policy may instead have a method
    `reference(facts: Facts)` that returns a tuple of integers. With neither, the specification
    does not run.
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


class Lru:
    """Least recently used first, separately for each component. A hit refreshes a component only at
    the nodes where its boundary requires it, not at the nodes above them."""

    name = "lru"
    whole_path = False
    order = (Term("last_use"),)

    def rank(self, node: Node, component: int) -> int:
        return node.last_use[component]


class LruPath:
    """LRU in which every hit refreshes every component on its whole path; of the windows and states
    of one path, those near the root go first. For comparison: the order of `MambaRadixCache` of
    SGLang before pull request 31643. Unused states of a path stay as recent as the one in use, so
    they displace the states of other prompts."""

    name = "lru_path"
    whole_path = True
    order = (Term("last_use"), Term("depth"))

    def rank(self, node: Node, component: int) -> int:
        above = node.parent
        depth = 0 if component == BACKBONE or above is None else above.end_page
        return before(node.last_use[component], depth)


class Fifo:
    """The node that was inserted first is evicted first. Hits change nothing."""

    name = "fifo"
    whole_path = False
    order = (Term("inserted"),)

    def rank(self, node: Node, component: int) -> int:
        return node.inserted


class Lfu:
    """Least frequently used first; of nodes with the same hits, the least recently used."""

    name = "lfu"
    whole_path = False
    order = (Term("hits"), Term("last_use"))

    def rank(self, node: Node, component: int) -> int:
        return before(node.hits, node.last_use[component])


class Slru:
    """Segmented LRU: nodes that only one request used (probation) before nodes that several used
    (protected); in each segment, least recently used first. The protected segment has no size
    limit, and a node never goes back to probation, so its rank never falls."""

    name = "slru"
    whole_path = False
    order = (Term("hits", PROTECTED), Term("last_use"))

    def rank(self, node: Node, component: int) -> int:
        return before(min(node.hits, PROTECTED), node.last_use[component])


class Priority:
    """Lowest priority first; within one priority, least recently used first. The priority of a node
    is the highest among the requests that used it (`Arrived.priority`)."""

    name = "priority"
    whole_path = False
    order = (Term("priority"), Term("last_use"))

    def rank(self, node: Node, component: int) -> int:
        return before(node.priority, node.last_use[component])


PLUGINS = {kind.name: kind for kind in (Lru, LruPath, Fifo, Lfu, Slru, Priority)}
