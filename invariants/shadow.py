"""Shadows of nodes: what each node last contributed to the books, and the sums over them.

Lives here: the retract-old, add-new bookkeeping of nodes, the flat reference of cached prefixes
and the reference clock. Must not live here: verdicts, or a look into the core's own sums
(`with_pages`, `queued`, counts), which checks compare with these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

import numpy as np

from hicache.core.node import Node
from hicache.core.types import Pages

from .pages import NODE, PageBook, code_of
from .tags import NO_TAGS, Tags, chain, chain_root, run_tags, seed_of

DEVICE, HOST, DUPLICATE = 0, 1, 2  # eviction queues; the first two are also tiers
QUEUE_TIER = (0, 1, 1)


class Shadow:
    """One node as the books know it."""

    __slots__ = (
        "candidate",
        "digests",
        "end",
        "filed",
        "id",
        "key",
        "kids",
        "kids_on",
        "label",
        "locked",
        "namespace",
        "node",
        "pages",
        "parent",
        "span",
        "tags",
        "use",
    )

    def __init__(self, node_id: int) -> None:
        self.id = node_id
        self.node: Node | None = None  # the record it shadows
        self.parent: Shadow | None = None
        self.key = b""
        self.label = b""
        self.namespace = ""
        self.end = 0
        self.span = 0  # pages of the run
        self.pages: list[Pages | None] = [None, None]
        self.locked = [0, 0]  # holders expected on each tier
        self.tags: Tags = NO_TAGS
        self.digests: tuple[bytes, ...] | None = None
        self.kids = 0
        self.kids_on = [0, 0]
        self.use = 0
        self.candidate = 0  # bit q: could be evicted from queue q now
        self.filed = -1  # the use under which `order` has it


class NodeBook:
    """Every node of the tree, the prefixes they cache, and who could be evicted next."""

    def __init__(self, pages: list[PageBook], with_digests: bool) -> None:
        self.pages = pages
        self.with_digests = with_digests
        self.stride = 1  # bytes per key row, told by the first request
        self.root = Shadow(0)
        self.by_id: dict[int, Shadow] = {0: self.root}
        self.at: dict[int, Shadow] = {}  # by the tag of a node's last page
        self.resident: tuple[set[int], set[int]] = (set(), set())
        self.digests: tuple[set[bytes], set[bytes]] = (set(), set())
        self.order: list[list[tuple[int, int]]] = [[], [], []]  # (use, id), lazily
        self.clock = 0
        self.recounts = 0
        self.dirty: dict[int, Shadow] = {}
        self.gone: list[Shadow] = []
        self._moved: list[tuple[Shadow, Node]] = []

    def retract(self, touched: Mapping[int, Node], root: Node) -> None:
        """First half of an operation: take out what changed, whatever it is going to be."""
        self.dirty, self.gone, self._moved = {}, [], []
        self.root.node = root
        for node_id, node in touched.items():
            shadow = self.by_id.get(node_id)
            parent = node.parent
            if node is root:
                self.dirty[node_id] = self.root
            elif parent is None or parent.children.get(node.label) is not node:
                if shadow is not None:
                    self._take_out(shadow, None, None)
                    self._unlink(shadow)
            elif shadow is None:
                self._moved.append((Shadow(node_id), node))
            else:
                self.dirty[node_id] = shadow
                device, host = node.pages[0][0], node.pages[1][0]
                if (
                    node.key is not shadow.key
                    or device is not shadow.pages[0]
                    or host is not shadow.pages[1]
                    or shadow.parent is None
                    or parent.id != shadow.parent.id
                ):
                    same = node.key is shadow.key
                    keep = (device, host) if same else (None, None)
                    self._take_out(shadow, *keep)
                    self._moved.append((shadow, node))

    def _take_out(self, shadow: Shadow, device: Pages | None, host: Pages | None) -> None:
        """Retract the tiers whose pages differ from what is going to be there."""
        tags: list[int] | None = None
        for tier, now in ((0, device), (1, host)):
            before = shadow.pages[tier]
            if before is None or before is now:
                continue
            book = self.pages[tier]
            book.retract(before, code_of(NODE, shadow.id))
            book.last_use[before] = shadow.use
            if shadow.locked[tier]:
                book.protected -= len(before)
                shadow.locked[tier] = 0
            shadow.pages[tier] = None
            tags = shadow.tags.tolist() if tags is None else tags
            self.resident[tier].difference_update(tags)
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
                shadow.use = self._inherited(shadow, node)
        for shadow, node in moved:
            tags: list[int] | None = None
            for tier in (0, 1):
                now = node.pages[tier][0]
                if now is None or shadow.pages[tier] is now:
                    continue
                shadow.pages[tier] = now
                self.pages[tier].claim(now, code_of(NODE, shadow.id))
                tags = shadow.tags.tolist() if tags is None else tags
                self.resident[tier].update(tags)
                if shadow.digests is not None:
                    self.digests[tier].update(shadow.digests)
                if shadow.parent is not None:
                    shadow.parent.kids_on[tier] += 1
                    self.dirty[shadow.parent.id] = shadow.parent

    def _inherited(self, shadow: Shadow, node: Node) -> int:
        """A split's upper half has been used when its lower half was, even where the lower half
        is gone by now; anything else is new."""
        while len(node.children) == 1:
            node = next(iter(node.children.values()))
            lower = self.by_id.get(node.id)
            if lower is not None:
                return lower.use
        for gone in self.gone:
            at = shadow.end - (gone.end - gone.span) - 1
            if 0 <= at < gone.span and gone.tags[at] == shadow.tags[-1]:
                return gone.use
        return self.clock

    def _place(self, shadow: Shadow, node: Node) -> None:
        """Parent, key and what follows from the key."""
        shadow.node = node
        parent = self.by_id.get(node.parent.id) if node.parent is not None else None
        if parent is not shadow.parent:
            if shadow.parent is not None:
                shadow.parent.kids -= 1
                for tier in (0, 1):
                    shadow.parent.kids_on[tier] -= shadow.pages[tier] is not None
                self._mark(shadow.parent)
            if parent is not None:
                parent.kids += 1
                for tier in (0, 1):
                    parent.kids_on[tier] += shadow.pages[tier] is not None
                self.dirty[parent.id] = parent
            shadow.parent = parent
        if node.key is not shadow.key:
            self._rekey(shadow, node, parent)
        shadow.label = node.label

    def _rekey(self, shadow: Shadow, node: Node, parent: Shadow | None) -> None:
        old, key, end = shadow.key, node.key, node.end
        if len(shadow.tags) and self.at.get(int(shadow.tags[-1])) is shadow:
            del self.at[int(shadow.tags[-1])]
        shadow.namespace, above = self._above(node, parent)
        pages = len(key) // self.stride
        if end == shadow.end and len(key) <= len(old) and old.endswith(key):
            first = len(shadow.tags) - pages
        elif end - pages == shadow.end - len(shadow.tags) and pages and old.startswith(key):
            first = 0
        else:
            first = -1
        if first >= 0:
            shadow.tags = shadow.tags[first : first + pages]
            if shadow.digests is not None:
                shadow.digests = shadow.digests[first : first + pages]
        else:
            start = parent.end if parent is not None else 0
            shadow.tags = run_tags(key, self.stride, start, above)
            if self.with_digests:
                shadow.digests = chain(self._digest_above(shadow, parent), key, self.stride)
        shadow.key, shadow.end, shadow.span = key, end, pages
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

    def used(self, tag: int) -> bool:
        """A request used the path that ends with this tag. False if there is no such path."""
        shadow = self.at.get(tag)
        if shadow is None:
            return False
        step: Shadow | None = shadow
        while step is not None and step is not self.root:
            step.use = self.clock
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

    def refresh(self, shadow: Shadow) -> None:
        """Locks and candidacy, which follow from the page books once all is filed."""
        for tier in (0, 1):
            pages = shadow.pages[tier]
            locked = 0 if pages is None or not len(pages) else int(self.pages[tier].locks[pages[0]])
            if (locked > 0) != (shadow.locked[tier] > 0) and pages is not None:
                self.pages[tier].protected += len(pages) if locked else -len(pages)
            shadow.locked[tier] = locked
        bits = candidacy(shadow)
        if bits and (bits & ~shadow.candidate or shadow.filed != shadow.use):
            shadow.filed = shadow.use
            for queue in (DEVICE, HOST, DUPLICATE):
                if bits >> queue & 1:
                    heappush(self.order[queue], (shadow.use, shadow.id))
        shadow.candidate = bits

    def coldest(self, queue: int, but: Iterable[int]) -> Shadow | None:
        """The candidate with the least last use that is not one of `but`."""
        heap, skipped, found = self.order[queue], [], None
        while heap:
            use, node_id = heap[0]
            shadow = self.by_id.get(node_id)
            if shadow is None or shadow.use != use or not shadow.candidate >> queue & 1:
                heappop(heap)
            elif node_id in but:
                skipped.append(heappop(heap))
            else:
                found = shadow
                break
        for entry in skipped:
            heappush(heap, entry)
        return found


def candidacy(shadow: Shadow) -> int:
    """Which eviction queues the node belongs in, by definition."""
    if shadow.parent is None:
        return 0
    on_device, on_host = shadow.pages[0] is not None, shadow.pages[1] is not None
    bits = 0
    if on_device and not shadow.kids_on[0] and not shadow.locked[0]:
        bits = 1 << DEVICE
    if on_host and not shadow.kids_on[1] and not shadow.locked[1]:
        bits |= 1 << (DUPLICATE if on_device else HOST)
    return bits


def _depth(pair: tuple[Shadow, Node]) -> int:
    return pair[1].end
