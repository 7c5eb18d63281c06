"""Every node of the tree as the books know it, and the sums over them.

Lives here: the retract-old, add-new bookkeeping of nodes, the flat reference of cached prefixes
and the reference clock. Must not live here: what one node says by itself (`shadow`), or verdicts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from hicache.core.radix.node import NONE, Node

from .kinds import Kind
from .liveness import widest
from .orders import Order
from .pages import NODE, PageBook, code_of
from .shadow import Rank, Shadow, candidacy, differ, serves
from .tags import chain, chain_root, run_tags, seed_of


class Queue(NamedTuple):
    """A part of an eviction queue of the core: what serves, or what does not. Entry by entry the
    rank, and the node."""

    ranks: list[int]
    members: list[int]


class NodeBook:
    """Every node of the tree, the prefixes they cache, and who could be evicted next."""

    def __init__(
        self,
        pages: list[PageBook],
        kinds: Sequence[Kind],
        uses: Sequence[int],
        order: Order,
        page_size: int,
        with_digests: bool,
    ) -> None:
        self.pages = pages
        self.kinds = kinds
        self.uses = uses  # positions above a boundary that a hit there uses, per component
        self.declared = order  # by the eviction policy
        self.page_size = page_size
        self.width = width = len(kinds)
        self.widest = widest(kinds)
        self.with_digests = with_digests
        self.stride = 1  # bytes per key row, told by the first request
        self.root = Shadow(0, width)
        self.by_id: dict[int, Shadow] = {0: self.root}
        self.at: dict[int, Shadow] = {}  # by the tag of a node's last page
        self.resident: list[set[int]] = [set() for _ in range(2 * width)]
        self.digests: tuple[set[bytes], set[bytes]] = (set(), set())
        self.order: list[list[tuple[Rank, int]]] = [[] for _ in range(3 * width)]  # (rank, id)
        self.parted: dict[tuple[int, int], Rank] = {}  # of what gave up its pages, by node and
        # component, the rank that it had before this operation
        self.queues: list[Queue] = []  # the core's, by part, when last recounted
        self.clock = 0
        self.recounts = 0
        self.dirty: dict[int, Shadow] = {}
        self.gone: list[Shadow] = []
        self.sank: set[int] = set()  # nodes that this operation made garbage of, or candidates
        self.died: set[int] = set()  # nodes whose last live boundary this operation took
        self.came = self.turned = 0  # nodes that are new, or serve another distance now
        self._moved: list[tuple[Shadow, Node]] = []

    def retract(self, touched: Mapping[int, Node], root: Node) -> None:
        """First half of an operation: take out what changed, whatever it is going to be."""
        self.dirty, self.gone, self.parted, self._moved = {}, [], {}, []
        self.came = self.turned = 0
        if self.sank or self.died:
            self.sank, self.died = set(), set()
        self.root.node = root
        for node_id, node in touched.items():
            shadow = self.by_id.get(node_id)
            parent = node.parent
            if node is root:
                self.dirty[node_id] = self.root
            elif parent is None or parent.children.get(node.label) is not node:
                if shadow is not None:
                    self._take_out(shadow, None)
                    self._unlink(shadow)
            elif shadow is None:
                self._moved.append((Shadow(node_id, self.width), node))
            else:
                self.dirty[node_id] = shadow
                if (
                    node.key is not shadow.key
                    or shadow.parent is None
                    or parent.id != shadow.parent.id
                    or differ(shadow, node)
                ):
                    self._take_out(shadow, node if node.key is shadow.key else None)
                    self._moved.append((shadow, node))

    def _take_out(self, shadow: Shadow, keep: Node | None) -> None:
        """Retract the slots whose pages differ from what `keep` has there."""
        tags: list[int] | None = None
        shadow.gave = [None, None]
        for slot, before in enumerate(shadow.pages):
            tier, index = divmod(slot, self.width)
            if before is None or (keep is not None and keep.pages[tier][index] is before):
                continue
            book = self.pages[slot]
            book.retract(before, code_of(NODE, shadow.id))
            rank = shadow.rank[index]
            book.giver[before], book.served[before] = shadow.id, rank is not None and rank[0]
            if rank is not None:
                self.parted[shadow.id, index] = rank
            if shadow.locked[slot]:
                book.protected -= len(before)
                shadow.locked[slot] = 0
            shadow.pages[slot] = None
            if not self.kinds[index].positional:
                self.resident[slot].discard(int(shadow.tags[-1]))
                continue
            tags = shadow.tags.tolist() if tags is None else tags
            self.resident[slot].difference_update(tags)
            if index:
                continue
            shadow.gave[tier] = before
            if shadow.digests is not None:
                self.digests[tier].difference_update(shadow.digests)
            if shadow.parent is not None:
                shadow.parent.kids_on[tier] -= 1
                self._mark(shadow.parent)

    def _mark(self, shadow: Shadow) -> None:
        if self.by_id.get(shadow.id) is shadow:
            self.dirty[shadow.id] = shadow

    def _unlink(self, shadow: Shadow) -> None:
        self.by_id.pop(shadow.id, None)
        self.dirty.pop(shadow.id, None)
        if len(shadow.tags) and self.at.get(int(shadow.tags[-1])) is shadow:
            del self.at[int(shadow.tags[-1])]
        if shadow.parent is not None:
            shadow.parent.kids -= 1
            self._mark(shadow.parent)
        shadow.candidate = 0
        self.gone.append(shadow)

    def claim(self) -> None:
        """Second half: put in what is there now, parents before children."""
        moved = self._moved
        if len(moved) > 1:
            moved.sort(key=_depth)
        for shadow, node in moved:
            fresh = shadow.id not in self.by_id
            self.by_id[shadow.id] = shadow
            self.dirty[shadow.id] = shadow
            self._place(shadow, node)
            if fresh:
                self.came += 1
                self._inherit(shadow, node)
        for shadow, node in moved:
            tags: list[int] | None = None
            for slot, before in enumerate(shadow.pages):
                tier, index = divmod(slot, self.width)
                now = node.pages[tier][index]
                if now is None or before is now:
                    continue
                shadow.pages[slot] = now
                self.pages[slot].claim(now, code_of(NODE, shadow.id))
                if not self.kinds[index].positional:
                    self.resident[slot].add(int(shadow.tags[-1]))
                    continue
                tags = shadow.tags.tolist() if tags is None else tags
                self.resident[slot].update(tags)
                if index:
                    continue
                if shadow.digests is not None:
                    self.digests[tier].update(shadow.digests)
                if shadow.parent is not None:
                    shadow.parent.kids_on[tier] += 1
                    self.dirty[shadow.parent.id] = shadow.parent

    def _inherit(self, shadow: Shadow, node: Node) -> None:
        """A split's upper half came and was used when and as often as its lower half, even where
        that is gone by now; anything else is new."""
        lower = self._lower_half(shadow, node)
        if lower is None:
            shadow.use = [self.clock] * self.width
            shadow.inserted = self.clock
            return
        shadow.use = lower.use.copy()
        shadow.inserted, shadow.hits = lower.inserted, lower.hits
        shadow.priority = lower.priority

    def _lower_half(self, shadow: Shadow, node: Node) -> Shadow | None:
        """The node that this new one was split from."""
        below = list(node.children.values())
        for child in below:
            lower = self.by_id.get(child.id)
            if lower is None:
                below.extend(child.children.values())
            elif lower.end_page - lower.span < shadow.end_page:  # parents first: it is not cut yet
                return lower
        for gone in self.gone:
            at = shadow.end_page - (gone.end_page - gone.span) - 1
            if not 0 <= at < gone.span or gone.tags[at] != shadow.tags[-1]:
                continue
            for held, gave in zip((tier[0] for tier in node.pages), gone.gave, strict=True):
                if held is not None and gave is not None and gave[at] == held[-1]:
                    return gone  # else it was lost, and is there again
        return None

    def _place(self, shadow: Shadow, node: Node) -> None:
        """Parent, key and what follows from the key."""
        shadow.node = node
        parent = self.by_id.get(node.parent.id) if node.parent is not None else None
        if parent is not shadow.parent:
            if shadow.parent is not None:
                shadow.parent.kids -= 1
                for tier in (0, 1):
                    shadow.parent.kids_on[tier] -= shadow.pages[tier * self.width] is not None
                self._mark(shadow.parent)
            if parent is not None:
                parent.kids += 1
                for tier in (0, 1):
                    parent.kids_on[tier] += shadow.pages[tier * self.width] is not None
                self.dirty[parent.id] = parent
            shadow.parent = parent
        if node.key is not shadow.key:
            self._rekey(shadow, node, parent)
        shadow.label = node.label

    def _rekey(self, shadow: Shadow, node: Node, parent: Shadow | None) -> None:
        old, key, end = shadow.key, node.key, node.end_page
        if len(shadow.tags) and self.at.get(int(shadow.tags[-1])) is shadow:
            del self.at[int(shadow.tags[-1])]
        shadow.namespace, above = self._above(node, parent)
        pages = len(key) // self.stride
        if end == shadow.end_page and len(key) <= len(old) and old.endswith(key):
            first = len(shadow.tags) - pages
        elif end - pages == shadow.end_page - len(shadow.tags) and pages and old.startswith(key):
            first = 0
        else:
            first = -1
        if first >= 0:
            shadow.tags = shadow.tags[first : first + pages]
            if shadow.digests is not None:
                shadow.digests = shadow.digests[first : first + pages]
        else:
            start = parent.end_page if parent is not None else 0
            shadow.tags = run_tags(key, self.stride, start, above)
            if self.with_digests:
                shadow.digests = chain(self._digest_above(shadow, parent), key, self.stride)
        shadow.key, shadow.end_page, shadow.span = key, end, pages
        if len(shadow.tags):
            self.at[int(shadow.tags[-1])] = shadow

    def _above(self, node: Node, parent: Shadow | None) -> tuple[str, np.uint64]:
        """The namespace of a run, and the tag of the prefix above it."""
        if parent is not None and parent is not self.root:
            above = parent.tags[-1] if len(parent.tags) else seed_of(parent.namespace)
            return parent.namespace, above
        namespace = node.label[: -self.stride].rstrip(b"\0").decode()
        return namespace, seed_of(namespace)

    def _digest_above(self, shadow: Shadow, parent: Shadow | None) -> bytes:
        if parent is None or not parent.digests:
            return chain_root(shadow.namespace)
        return parent.digests[-1]

    def used(self, tag: int, above: Sequence[int], priority: int, since: int) -> bool:
        """A request of this priority used the boundary that ends with this tag, and those at the
        depths `above` it; the nodes up to page `since` it has used before. False if there is no
        such node."""
        shadow = self.at.get(tag)
        if shadow is None:
            return False
        end, clock, uses = shadow.end_page, self.clock, self.uses
        step: Shadow | None = shadow
        while step is not None and step is not self.root:
            at = step.end_page
            for index, need in enumerate(uses):
                if end - at < need or any(0 <= depth - at < need for depth in above):
                    step.use[index] = clock
            if at > since:
                step.hits += 1
            step.priority = priority if step.hits == 1 else max(step.priority, priority)
            self.dirty[step.id] = step
            step = step.parent
        return True

    def path(self, node_id: int) -> list[Shadow]:
        """From the node up to, not including, the root."""
        step = self.by_id.get(node_id)
        above: list[Shadow] = []
        while step is not None and step is not self.root:
            above.append(step)
            step = step.parent
        return above

    def required(self, index: int, tag: int) -> list[Shadow]:
        """The nodes, deepest first, that the boundary with this tag requires of a component."""
        step = self.at.get(tag)
        found: list[Shadow] = []
        if step is None:
            return found
        end, need = step.end_page, self.kinds[index].need
        while step is not None and step is not self.root and end - step.end_page < need:
            found.append(step)
            step = step.parent
        return found

    def refresh(self, shadow: Shadow) -> None:
        """Locks, ranks and candidacy, which follow from the page books once all is filed."""
        locked = shadow.locked
        for slot, pages in enumerate(shadow.pages):
            if pages is None or not len(pages):
                locked[slot] = 0
                continue
            book, before = self.pages[slot], locked[slot]
            locked[slot] = now = int(book.locks[pages[0]])
            if (now > 0) != (before > 0):
                book.protected += len(pages) if now else -len(pages)
        bits = candidacy(shadow, self.width)
        fresh, near = bits & ~shadow.candidate, shadow.node.live_distance if shadow.node else NONE
        self.turned += near != shadow.live_distance
        if near == NONE != shadow.live_distance:
            self.died.add(shadow.id)
        shadow.live_distance = near
        key_of, leaves_first = self.declared
        for kind in self.kinds:
            index, serving = kind.at, serves(kind, near)
            key = key_of(shadow, index) if key_of is not None else ()
            rank: Rank = (serving, key)
            known, shadow.rank[index] = shadow.rank[index], rank
            sank = not serving if known is None else rank < known
            if sank or (fresh and (self.width > 1 or not leaves_first)):
                self.sank.add(shadow.id)
            if bits >> 3 * index & 7 and (rank != known or fresh >> 3 * index & 7):
                for queue in range(3 * index, 3 * index + 3):
                    if bits >> queue & 1:
                        heappush(self.order[queue], (rank, shadow.id))
        shadow.candidate = bits

    def coldest(self, index: int, queue: int, but: Collection[int]) -> Shadow | None:
        """The candidate of a component's queue that is to go first, of those that are not `but`."""
        queue += 3 * index
        heap, skipped, found = self.order[queue], [], None
        while heap:
            rank, node_id = heap[0]
            shadow = self.by_id.get(node_id)
            if shadow is None or shadow.rank[index] != rank or not shadow.candidate >> queue & 1:
                heappop(heap)
            elif node_id in but:
                skipped.append(heappop(heap))
            else:
                found = shadow
                break
        for entry in skipped:
            heappush(heap, entry)
        return found


def _depth(pair: tuple[Shadow, Node]) -> int:
    return pair[1].end_page
