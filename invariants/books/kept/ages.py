"""What eviction policies with marks compare: how old a component is, what a page costs.

Lives here: the age of each component, the tick of the last insertion, and the cost of a page. They
are facts of nodes (see mirror) from the time when the node was inserted or visited. Does not
contain checks.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Evicted, Outcome
from hicache.core.types import Tier

from ..kinds import Kind
from ..mirror import NodeMirror
from ..orders import Order, number_of
from ..pages import PageBook

POSITIONS = 1024  # tokens to which the cost by position applies


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

    def hear(
        self,
        outcomes: Sequence[Outcome],
        pages: Sequence[PageBook],
        known: dict[int, NodeMirror],
        gone: Sequence[NodeMirror],
        order: Order,
    ) -> None:
        """Files what left the device in this operation. A part of a node was split off first."""
        if order.key is None:
            return
        nodes = {one.id: one for one in gone} | known
        books = {book.name: book for book in pages}
        for item in outcomes:
            if type(item) is not Evicted or item.tier != Tier.DEVICE or not len(item.pages):
                continue
            book, last = books[item.component], item.pages[-1]
            mirror = nodes.get(int(book.giver[last]))
            if mirror is None:
                continue
            whole = mirror.cost
            at = (mirror.tags == book.content[last]).nonzero()[0]
            if len(at) and at[0] + 1 < mirror.span:
                mirror.cost = self.cost_at(mirror.end_page - mirror.span + int(at[0]) + 1)
            rank = number_of(order.key(mirror, book.component))
            self.now[book.component] = max(self.now[book.component], rank)
            mirror.cost = whole
