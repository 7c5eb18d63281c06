"""The books' record of all nodes of the tree, and sums over them.

Lives here: retracting old and claiming new facts of nodes, the set of cached prefixes, and the
reference clock. Does not contain properties of a single node (see mirror) or checks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

import numpy as np

from hicache.core.eviction_policies.base import Facts
from hicache.core.radix.node import NONE, Node

from .distances import presence, update, widest
from .kept.ages import Ages
from .kept.chances import Chances
from .kinds import Kind
from .mirror import HOST, NodeMirror, Rank, candidacy, differ, lower_half, serves
from .orders import Order, Queue, facts_of
from .pages import NODE, PageBook, code_of
from .tags import chain, chain_root, run_tags, seed_of


class NodeBook:
    """All nodes of the tree, the prefixes that they cache, and the order of eviction."""

    def __init__(
        self,
        pages: list[PageBook],
        kinds: Sequence[Kind],
        uses: Sequence[int],
        order: Order,
        chances: Chances | None,
        page_size: int,
        with_digests: bool,
    ) -> None:
        self.pages = pages
        self.kinds = kinds
        self.uses = uses  # per component, the positions above a boundary that a hit uses
        self.declared = order  # the order that the eviction policy declares
        self.width = width = len(kinds)
        self.widest = widest(kinds)
        self.with_digests = with_digests or chances is not None
        self.stride = 1  # bytes per key row, known from the first request
        self.root = NodeMirror(0, width)
        self.by_id: dict[int, NodeMirror] = {0: self.root}
        self.at: dict[int, NodeMirror] = {}  # by the tag of the node's last page
        self.resident: list[set[int]] = [set() for _ in range(2 * width)]
        self.digests: tuple[set[bytes], set[bytes]] = (set(), set())
        self.order: list[list[tuple[Rank, int]]] = [[] for _ in range(3 * width)]  # (rank, id)
        # by node and component, the rank that a removed copy had before this operation
        self.parted: dict[tuple[int, int], Rank] = {}
        self.parted_use: dict[tuple[int, int], int] = {}  # the same, of its last use
        self.parted_facts: dict[tuple[int, int], Facts] = {}  # and of its facts, if marked
        self.queues: list[Queue] = []  # the core's queues at the last recount
        self.clock = 0
        self.ages = Ages(kinds, page_size)
        self.chances = chances  # of a policy with second chances
        self.recounts = 0
        self.dirty: dict[int, NodeMirror] = {}
        self.gone: list[NodeMirror] = []
        self.sank: set[int] = set()  # nodes that became garbage or candidates in this operation
        self.died: set[int] = set()  # nodes that lost their last live boundary in this operation
        self.hosted: set[int] = set()  # nodes that became host candidates in this operation
        self.came = 0  # number of new nodes
        self.newcomers_priority: int | None = None  # of nodes that a fetch makes
        self.turned: set[int] = set()  # nodes with another live distance since this operation
        self._moved: list[tuple[NodeMirror, Node]] = []
        self._host_bits = sum(1 << 3 * kind.at + HOST for kind in kinds)

    def retract(self, touched: Mapping[int, Node], root: Node) -> None:
        """First half of an operation: retracts all changed facts."""
        self.dirty, self.gone, self._moved = {}, [], []
        if self.parted_use:
            self.parted, self.parted_use, self.parted_facts = {}, {}, {}
        self.came = 0
        self.ages.begin()
        if self.sank or self.turned or self.hosted:
            self.sank, self.died, self.turned, self.hosted = set(), set(), set(), set()
        self.root.node = root
        for node_id, node in touched.items():
            mirror = self.by_id.get(node_id)
            parent = node.parent
            if node is root:
                self.dirty[node_id] = self.root
            elif parent is None or parent.children.get(node.label) is not node:
                if mirror is not None:
                    self._take_out(mirror, None)
                    self._unlink(mirror)
            elif mirror is None:
                self._moved.append((NodeMirror(node_id, self.width), node))
            else:
                self.dirty[node_id] = mirror
                if (
                    node.key is not mirror.key
                    or mirror.parent is None
                    or parent.id != mirror.parent.id
                    or differ(mirror, node)
                ):
                    self._take_out(mirror, node if node.key is mirror.key else None)
                    self._moved.append((mirror, node))

    def _take_out(self, mirror: NodeMirror, keep: Node | None) -> None:
        """Retracts the slots whose pages differ from those of `keep`."""
        tags: list[int] | None = None
        mirror.gave = [None, None]
        for slot, before in enumerate(mirror.pages):
            tier, index = divmod(slot, self.width)
            if before is None or (keep is not None and keep.pages[tier][index] is before):
                continue
            book = self.pages[slot]
            book.retract(before, code_of(NODE, mirror.id))
            rank = mirror.rank[index]
            self.parted_use[mirror.id, index] = mirror.use[index]
            book.giver[before], book.served[before] = mirror.id, rank is not None and rank[0]
            if rank is not None:
                self.parted[mirror.id, index] = rank
                if self.declared.marked:
                    self.parted_facts[mirror.id, index] = facts_of(mirror, index)
            if mirror.locked[slot]:
                book.protected -= len(before)
                mirror.locked[slot] = 0
            mirror.pages[slot] = None
            if not self.kinds[index].positional:
                self.resident[slot].discard(int(mirror.tags[-1]))
                continue
            tags = mirror.tags.tolist() if tags is None else tags
            self.resident[slot].difference_update(tags)
            if index:
                continue
            mirror.gave[tier] = before
            if mirror.digests is not None:
                self.digests[tier].difference_update(mirror.digests)
            if mirror.parent is not None:
                mirror.parent.kids_on[tier] -= 1
                self._mark(mirror.parent)

    def _mark(self, mirror: NodeMirror) -> None:
        if self.by_id.get(mirror.id) is mirror:
            self.dirty[mirror.id] = mirror

    def _unlink(self, mirror: NodeMirror) -> None:
        self.by_id.pop(mirror.id, None)
        self.dirty.pop(mirror.id, None)
        if len(mirror.tags) and self.at.get(int(mirror.tags[-1])) is mirror:
            del self.at[int(mirror.tags[-1])]
        if mirror.parent is not None:
            mirror.parent.kids -= 1
            self._mark(mirror.parent)
        mirror.candidate = 0
        self.gone.append(mirror)

    def claim(self) -> None:
        """Second half: claims the present facts, parents before children."""
        moved = self._moved
        if len(moved) > 1:
            moved.sort(key=lambda pair: pair[1].end_page)
        for mirror, node in moved:
            fresh = mirror.id not in self.by_id
            self.by_id[mirror.id] = mirror
            self.dirty[mirror.id] = mirror
            self._place(mirror, node)
            if fresh:
                self.came += 1
                self._inherit(mirror, node)
        for mirror, node in moved:
            tags: list[int] | None = None
            for slot, before in enumerate(mirror.pages):
                tier, index = divmod(slot, self.width)
                now = node.pages[tier][index]
                if now is None or before is now:
                    continue
                mirror.pages[slot] = now
                self.pages[slot].claim(now, code_of(NODE, mirror.id))
                if not self.kinds[index].positional:
                    self.resident[slot].add(int(mirror.tags[-1]))
                    continue
                tags = mirror.tags.tolist() if tags is None else tags
                self.resident[slot].update(tags)
                if index:
                    continue
                if mirror.digests is not None:
                    self.digests[tier].update(mirror.digests)
                if mirror.parent is not None:
                    mirror.parent.kids_on[tier] += 1
                    self.dirty[mirror.parent.id] = mirror.parent
        self._measure()

    def _measure(self) -> None:
        """Updates the distances to live boundaries after nodes came, went or changed pages."""
        changed = []
        if self.widest < 0:  # every end is a live boundary
            for mirror, _ in self._moved:
                mirror.live_distance = 0
            return
        for mirror, _ in self._moved:
            there = presence(mirror, self.width)
            if there != mirror.there:
                mirror.there = there
                changed.append(mirror)
        parents = [mirror.parent for mirror in (*self.gone, *changed)]
        above = [mirror for mirror in parents if mirror is not None]
        if not changed and not above:
            return
        for mirror in update(self.by_id, changed, above, self.kinds, self.widest):
            mirror.changed = True
            self.dirty[mirror.id] = mirror
            self.turned.add(mirror.id)
            if mirror.live_distance == NONE:
                self.died.add(mirror.id)

    def _inherit(self, mirror: NodeMirror, node: Node) -> None:
        """Sets the use facts of a new node.

        The upper half of a split has those of its lower half, even if that is gone by now. Any
        other node is new.
        """
        mirror.changed = True
        mirror.cost = self.ages.cost_at(mirror.end_page)
        lower = lower_half(mirror, node, self.by_id, self.gone)
        if self.chances is not None:
            self.chances.inherit(mirror, lower)
        if lower is None:
            fetched = self.newcomers_priority is not None
            mirror.use = [self.clock if fetched else 0] * self.width
            mirror.inserted, mirror.priority = self.clock, self.newcomers_priority or 0
            mirror.fetched = fetched
            self.ages.inserted(mirror, self.clock)
            return
        mirror.use = lower.use.copy()
        mirror.inserted, mirror.hits, mirror.earlier = lower.inserted, lower.hits, lower.earlier
        mirror.priority, mirror.fetched = lower.priority, lower.fetched
        mirror.visits, mirror.age = lower.visits.copy(), lower.age.copy()

    def _place(self, mirror: NodeMirror, node: Node) -> None:
        """Files the parent, the key and the facts that follow from the key."""
        mirror.node = node
        parent = self.by_id.get(node.parent.id) if node.parent is not None else None
        if parent is not mirror.parent:
            if mirror.parent is not None:
                mirror.parent.kids -= 1
                for tier in (0, 1):
                    mirror.parent.kids_on[tier] -= mirror.pages[tier * self.width] is not None
                self._mark(mirror.parent)
            if parent is not None:
                parent.kids += 1
                for tier in (0, 1):
                    parent.kids_on[tier] += mirror.pages[tier * self.width] is not None
                self.dirty[parent.id] = parent
            mirror.parent = parent
        if node.key is not mirror.key:
            self._rekey(mirror, node, parent)
        mirror.label = node.label

    def _rekey(self, mirror: NodeMirror, node: Node, parent: NodeMirror | None) -> None:
        old, key, end = mirror.key, node.key, node.end_page
        if len(mirror.tags) and self.at.get(int(mirror.tags[-1])) is mirror:
            del self.at[int(mirror.tags[-1])]
        mirror.namespace, above = self._above(node, parent)
        pages = len(key) // self.stride
        if end == mirror.end_page and len(key) <= len(old) and old.endswith(key):
            first = len(mirror.tags) - pages
        elif end - pages == mirror.end_page - len(mirror.tags) and pages and old.startswith(key):
            first = 0
        else:
            first = -1
        if first >= 0:
            mirror.tags = mirror.tags[first : first + pages]
            if mirror.digests is not None:
                mirror.digests = mirror.digests[first : first + pages]
        else:
            start = parent.end_page if parent is not None else 0
            mirror.tags = run_tags(key, self.stride, start, above)
            if self.with_digests:
                mirror.digests = chain(self._digest_above(mirror, parent), key, self.stride)
        mirror.key, mirror.end_page, mirror.span = key, end, pages
        mirror.changed = True  # its depth
        if len(mirror.tags):
            self.at[int(mirror.tags[-1])] = mirror

    def _above(self, node: Node, parent: NodeMirror | None) -> tuple[str, np.uint64]:
        """Returns the namespace of a node, and the tag of the prefix above it."""
        if parent is not None and parent is not self.root:
            above = parent.tags[-1] if len(parent.tags) else seed_of(parent.namespace)
            return parent.namespace, above
        namespace = node.label[: -self.stride].rstrip(b"\0").decode()
        return namespace, seed_of(namespace)

    def _digest_above(self, mirror: NodeMirror, parent: NodeMirror | None) -> bytes:
        if parent is None or not parent.digests:
            return chain_root(mirror.namespace)
        return parent.digests[-1]

    def used(self, tag: int, above: Sequence[int], priority: int, since: int) -> bool:
        """Files a use of the boundary with this tag, and of those at the depths `above`.

        since: the request has already counted as a use of the nodes up to this page. Returns False
        if there is no node with this tag.
        """
        mirror = self.at.get(tag)
        if mirror is None:
            return False
        end, clock, uses = mirror.end_page, self.clock, self.uses
        step: NodeMirror | None = mirror
        while step is not None and step is not self.root:
            at = step.end_page
            visits = at > since and (step.hits > 0 or step.fetched)
            for index, need in enumerate(uses):
                if end - at < need or any(0 <= depth - at < need for depth in above):
                    step.use[index] = clock
                    if visits:
                        step.visits[index] += 1
                        step.age[index] = self.ages.before[index]
                        if self.chances is not None:
                            self.chances.visited(step)
            if at > since:
                step.hits += 1
                if step.hits == 1 and not step.fetched:
                    step.priority = priority
            if priority > step.priority:
                step.priority = priority
            step.changed = True
            self.dirty[step.id] = step
            step = step.parent
        return True

    def path(self, node_id: int) -> list[NodeMirror]:
        """Nodes from this one up to the child of the root."""
        step = self.by_id.get(node_id)
        above: list[NodeMirror] = []
        while step is not None and step is not self.root:
            above.append(step)
            step = step.parent
        return above

    def required(self, index: int, tag: int) -> list[NodeMirror]:
        """Nodes, deepest first, that the boundary with this tag requires of a component."""
        step = self.at.get(tag)
        found: list[NodeMirror] = []
        if step is None:
            return found
        end, need = step.end_page, self.kinds[index].need
        while step is not None and step is not self.root and end - step.end_page < need:
            found.append(step)
            step = step.parent
        return found

    def refresh(self, mirror: NodeMirror) -> None:
        """Updates locks, ranks and candidacy from the page books, after everything is filed."""
        locked = mirror.locked
        for slot, pages in enumerate(mirror.pages):
            if pages is None or not len(pages):
                locked[slot] = 0
                continue
            book, before = self.pages[slot], locked[slot]
            locked[slot] = now = int(book.locks[pages[0]])
            if (now > 0) != (before > 0):
                book.protected += len(pages) if now else -len(pages)
        bits = candidacy(mirror, self.width)
        fresh, near = bits & ~mirror.candidate, mirror.live_distance
        changed, mirror.changed = mirror.changed, False
        key_of, leaves_first, _ = self.declared
        if fresh and (self.width > 1 or not leaves_first):
            self.sank.add(mirror.id)
        if fresh & self._host_bits:
            self.hosted.add(mirror.id)
        for kind in self.kinds:
            index = kind.at
            known = rank = mirror.rank[index]
            if changed or rank is None:
                key = key_of(mirror, index) if key_of is not None else ()
                rank = mirror.rank[index] = (serves(kind, near), key)
                if not rank[0] if known is None else rank < known:
                    self.sank.add(mirror.id)
            if bits >> 3 * index & 7 and (rank != known or fresh >> 3 * index & 7):
                for queue in range(3 * index, 3 * index + 3):
                    if bits >> queue & 1:
                        heappush(self.order[queue], (rank, mirror.id))
        mirror.candidate = bits

    def coldest(self, index: int, queue: int, but: Collection[int]) -> NodeMirror | None:
        """Returns the first candidate of a component's queue that is not in `but`, or None."""
        queue += 3 * index
        heap, skipped, found = self.order[queue], [], None
        while heap:
            rank, node_id = heap[0]
            mirror = self.by_id.get(node_id)
            if mirror is None or mirror.rank[index] != rank or not mirror.candidate >> queue & 1:
                heappop(heap)
            elif node_id in but:
                skipped.append(heappop(heap))
            else:
                found = mirror
                break
        for entry in skipped:
            heappush(heap, entry)
        return found
