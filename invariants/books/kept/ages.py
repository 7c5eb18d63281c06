"""What eviction policies with marks compare: how old a component is, what a page costs.

Lives here: the age of each component, the tick of the last insertion, and the cost of a page. They
are facts of nodes (see mirror) from the time when the node was inserted or visited. Does not
contain checks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hicache.core.actions import Evicted, Outcome
from hicache.core.types import Tier

from ..kinds import Kind
from ..mirror import NodeMirror
from ..orders import Order, number_of
from ..pages import PageBook

POSITIONS = 1024  # tokens to which the cost by position applies


class Nodes(Protocol):
    """What is needed of the record of all nodes (see nodes)."""

    pages: list[PageBook]
    declared: Order
    by_id: dict[int, NodeMirror]
    at: dict[int, NodeMirror]
    gone: list[NodeMirror]
    parted_use: dict[tuple[int, int], int]


class Ages:
    """before: by component, the highest rank that left the device before this operation; `now`
    counts this operation, too. newest: the clock at the last insertion, `newest_before` without
    those of this operation. costs: of a token, and of each 1,024 tokens before it.
    """

    def __init__(self, kinds: Sequence[Kind], page_size: int) -> None:
        self.kinds = kinds
        self.page_size = page_size
        self.costs = (0, 0)
        self.before = [0] * len(kinds)
        self.now = [0] * len(kinds)
        self.newest = self.newest_before = 0

    def begin(self) -> None:
        """Before an operation is filed."""
        self.before, self.newest_before = self.now.copy(), self.newest

    def inserted(self, mirror: NodeMirror, clock: int) -> None:
        """A node is new in the tree, and no half of another."""
        mirror.age = self.before.copy()
        mirror.earlier, self.newest = self.newest_before, clock

    def cost_at(self, depth: int) -> list[int]:
        """By component, what the page costs that ends at this depth; of a state, all up to it."""
        page = self.costs[0] + self.costs[1] * depth * self.page_size // POSITIONS
        return [page if kind.positional else page * depth for kind in self.kinds]

    def hear(self, outcomes: Sequence[Outcome], nodes: Nodes, tick: int, late: bool) -> None:
        """Files what left the device: with `late`, what was used after this tick, else what was
        not."""
        key = nodes.declared.key
        for item in outcomes if nodes.declared.marked else ():
            if type(item) is not Evicted or item.tier != Tier.DEVICE or not len(item.pages):
                continue
            book = next(one for one in nodes.pages if one.name == item.component)
            mirror, cost = self.evicted(nodes, book, int(item.pages[-1]))
            if mirror is None or key is None or (item.last_use > tick) != late:
                continue
            index, whole, mirror.cost = book.component, mirror.cost, cost
            self.now[index] = max(self.now[index], number_of(key(mirror, index)))
            mirror.cost = whole

    def evicted(
        self, nodes: Nodes, book: PageBook, last: int
    ) -> tuple[NodeMirror | None, list[int]]:
        """The node of an evicted copy that ended with this page, and what the copy cost: that of an
        upper half, which this operation split off, less than that of the node."""
        tag = int(book.content[last])
        mirror = _giver(nodes, int(book.giver[last]), book.component, tag)
        if mirror is None:
            return None, []
        at = (mirror.tags == tag).nonzero()[0]
        if len(at) and at[0] + 1 < mirror.span:
            return mirror, self.cost_at(mirror.end_page - mirror.span + int(at[0]) + 1)
        return mirror, mirror.cost


def _giver(nodes: Nodes, giver: int, index: int, tag: int) -> NodeMirror | None:
    """The node that an evicted page was of.

    In the same operation, an earlier eviction may have split that node. Or a request gave a state
    to the tree, to the node at the end of its prefix.
    """
    found = None
    if (giver, index) in nodes.parted_use:
        gone = (one for one in nodes.gone if one.id == giver)
        found = nodes.by_id.get(giver) or next(gone, None)
    if found is None or not (found.tags == tag).any():
        found = nodes.at.get(tag, found)
    return found
