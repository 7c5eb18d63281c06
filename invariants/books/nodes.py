"""The books' record of all nodes of the tree, and sums over them.

Lives here: retracting old and claiming new facts of nodes, which prefixes are cached, and the
reference clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hicache.core.node import NONE, Node
from hicache.core.types import Rows

from .distances import presence, update, widest
from .kinds import Kind
from .mirror import NodeMirror, candidacy
from .pages import NODE, PageBook, code_of
from .tags import Tags, chain, chain_root, run_tags, seed_of


class Queue(NamedTuple):
    """One eviction queue of the core, either its garbage or the rest: the rank and the node of each
    entry.
    """

    ranks: list[int]
    members: list[int]


class Run(NamedTuple):
    """Rows that begin at page `start`, below a prefix with the tag `above`, and their tags."""

    rows: Rows
    start: int
    above: np.uint64
    tags: Tags


class NodeBook:
    """All nodes of the tree, and the prefixes that they cache."""

    def __init__(
        self, pages: list[PageBook], kinds: Sequence[Kind], page_size: int, with_digests: bool
    ) -> None:
        self.pages = pages
        self.kinds = kinds
        self.page_size = page_size
        self.width = width = len(kinds)
        self.widest = widest(kinds)
        self.with_digests = with_digests  # of every node at once, and sets of them
        self.stride = 1  # bytes per key row, known from the first request
        self.root = NodeMirror(0, width)
        self.by_id: dict[int, NodeMirror] = {0: self.root}
        self.at: dict[int, NodeMirror] = {}  # by the tag of the node's last page
        self.first: dict[int, NodeMirror] = {}  # by the tag of the node's first page
        self.digests: tuple[set[bytes], set[bytes]] = (set(), set())
        self.queues: list[Queue] = []  # the core's queues at the last recount
        self.clock = 0
        self.recounts = 0
        self.at_hand: list[Run] = []  # prompts of this operation, whose tags are known
        self._cut: dict[tuple[int, bytes], Run] = {}  # see `_note`
        self.dirty: dict[int, NodeMirror] = {}
        self.gone: list[NodeMirror] = []
        self.died: set[int] = set()  # nodes that lost their last live boundary in this operation
        self.came = 0  # number of new nodes
        self.turned = 0  # nodes with another live distance since this operation
        self._moved: list[tuple[NodeMirror, Node]] = []

    def retract(self, touched: Mapping[int, Node], root: Node) -> None:
        """First half of an operation: retracts all changed facts."""
        for mirror, _ in self._moved:
            mirror.moved = False
        self.dirty, self.gone, self._moved, self._cut = {}, [], [], {}
        self.came = self.turned = 0
        if self.died:
            self.died = set()
        self.root.node = root
        for node_id, node in touched.items():
            known = self.by_id.get(node_id)
            parent = node.parent
            if node is root:
                self.dirty[node_id] = self.root
            elif parent is None or parent.children.get(node.label) is not node:
                if known is not None:
                    self._note(known)
                    self._take_out(known, None)
                    self._unlink(known)
            elif known is None:
                self._moved.append((NodeMirror(node_id, self.width), node))
            else:
                self.dirty[node_id] = known
                if (
                    node.key is not known.key
                    or known.parent is None
                    or parent.id != known.parent.id
                    or node.pages is not known.held
                ):
                    if node.key is not known.key:
                        self._note(known)
                    self._take_out(known, node if node.key is known.key else None)
                    self._moved.append((known, node))

    def _note(self, mirror: NodeMirror) -> None:
        """Keeps the run of a node that goes or gets another key, as it was before this operation:
        where it is split, a new node has a part of it. By the tag above it and its first row."""
        parent = mirror.parent
        if parent is None or not len(mirror.tags):
            return
        above = self._end(parent, mirror.namespace)
        run = Run(mirror.key, mirror.end_page - mirror.span, above, mirror.tags)
        self._cut[int(above), bytes(mirror.key[: self.stride])] = run

    def _end(self, parent: NodeMirror, namespace: str) -> np.uint64:
        """The tag of the prefix down to the end of a node."""
        below_root = parent is self.root or not len(parent.tags)
        return seed_of(namespace) if below_root else parent.tags[-1]

    def _take_out(self, mirror: NodeMirror, keep: Node | None) -> None:
        """Retracts the slots whose pages differ from those of `keep`."""
        now = (*keep.pages[0], *keep.pages[1]) if keep is not None else ()
        for slot, before in enumerate(mirror.pages):
            if before is None or (now and now[slot] is before):
                continue
            tier, index = divmod(slot, self.width)
            book = self.pages[slot]
            book.retract(before, code_of(NODE, mirror.id))
            if mirror.locked[slot]:
                book.protected -= len(before)
                mirror.locked[slot] = 0
            mirror.pages[slot] = None
            if index:
                continue
            if self.with_digests and mirror.digests is not None:
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
        self._unplace(mirror)
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
            if mirror.id not in self.by_id:
                self.came += 1
                mirror.use = node.last_use[0]
            self.by_id[mirror.id] = mirror
            self.dirty[mirror.id] = mirror
            mirror.moved = True
            self._place(mirror, node)
        for mirror, node in moved:
            held, mirror.held = mirror.pages, node.pages
            for slot, now in enumerate((*node.pages[0], *node.pages[1])):
                if now is None or held[slot] is now:
                    continue
                held[slot] = now
                self.pages[slot].claim(now, code_of(NODE, mirror.id))
                tier, index = divmod(slot, self.width)
                if index:
                    continue
                if self.with_digests and mirror.digests is not None:
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
            self.dirty[mirror.id] = mirror
            self.turned += 1
            if mirror.live_distance == NONE:
                self.died.add(mirror.id)

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
        key, end = bytes(node.key), node.end_page
        old = bytes(mirror.key) if len(mirror.tags) else b""
        self._unplace(mirror)
        mirror.namespace, above = self._above(node, parent)
        pages = len(key) // self.stride
        if not old:
            first = -1
        elif end == mirror.end_page and len(key) <= len(old) and old.endswith(key):
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
            mirror.tags = self._tags(key, start, above)
            mirror.digests = None
        mirror.key, mirror.end_page, mirror.span = node.key, end, pages
        if len(mirror.tags):
            self.at[mirror.tags.item(-1)] = mirror
            self.first[mirror.tags.item(0)] = mirror
        if self.with_digests:
            self.digests_of(mirror)

    def _tags(self, rows: bytes, start: int, above: np.uint64) -> Tags:
        """The tags of these rows, the first of which is page `start` below a prefix with the tag
        `above`: those of a node that was there or of a prompt, where it has them at the same place,
        else they are computed."""
        cut = self._cut.get((int(above), rows[: self.stride]))
        for run in self.at_hand if cut is None else (cut, *self.at_hand):
            at = start - run.start
            if not 0 <= at < len(run.tags) or (run.tags[at - 1] if at else run.above) != above:
                continue
            first = at * self.stride
            if run.rows[first : first + len(rows)] == rows:
                return run.tags[at : at + len(rows) // self.stride].copy()
        return run_tags(rows, self.stride, start, above)

    def _unplace(self, mirror: NodeMirror) -> None:
        if len(mirror.tags):
            for places, tag in ((self.at, mirror.tags.item(-1)), (self.first, mirror.tags.item(0))):
                if places.get(tag) is mirror:
                    del places[tag]

    def _above(self, node: Node, parent: NodeMirror | None) -> tuple[str, np.uint64]:
        """Returns the namespace of a node, and the tag of the prefix above it."""
        if parent is not None and parent is not self.root:
            return parent.namespace, self._end(parent, parent.namespace)
        namespace = node.label[: -self.stride].rstrip(b"\0").decode()
        return namespace, seed_of(namespace)

    def digests_of(self, mirror: NodeMirror) -> tuple[bytes, ...]:
        """The digests of the node's pages, computed when they are first asked for."""
        unknown = []
        step: NodeMirror | None = mirror
        while step is not None and step.digests is None and step is not self.root:
            unknown.append(step)
            step = step.parent
        above = step.digests[-1] if step is not None and step.digests else b""
        for one in reversed(unknown):
            before = above or chain_root(one.namespace)
            one.digests = chain(before, bytes(one.key), self.stride)
            above = one.digests[-1] if one.digests else b""
        return mirror.digests or ()

    def known(self, tags: Tags) -> tuple[int, ...]:
        """By slot, how many of the prefixes with these tags, of one prompt, are cached."""
        counts, at = [0] * len(self.pages), 0
        while at < len(tags):
            mirror = self.first.get(int(tags[at]))
            if mirror is None:
                break
            run = tags[at : at + mirror.span]
            same = int(np.count_nonzero(mirror.tags[: len(run)] == run))
            for slot, pages in enumerate(mirror.pages):
                if pages is not None:
                    whole = self.pages[slot].positional
                    counts[slot] += same if whole else same == mirror.span
            if same < mirror.span:
                break
            at += mirror.span
        return tuple(counts)

    def used(self, tag: int) -> bool:
        """Files a use of the prefix with this tag. Returns False if no node ends with it."""
        step = self.at.get(tag)
        if step is None:
            return False
        while step is not None and step is not self.root:
            step.use = self.clock
            self.dirty[step.id] = step
            step = step.parent
        return True

    def left(self, tags: Tags) -> None:
        """Files that a request committed this prefix and left: it has used the path down to some
        node, which is the deepest one that the core counts as used."""
        for tag in tags[::-1].tolist():
            mirror = self.at.get(tag)
            node = None if mirror is None else mirror.node
            if node is not None and node.last_use[0] == self.clock:
                self.used(tag)
                return

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
        """Updates locks and candidacy from the page books, after everything is filed."""
        locked, books = mirror.locked, self.pages
        for slot, pages in enumerate(mirror.pages):
            if pages is None or not len(pages):
                locked[slot] = 0
                continue
            book, before = books[slot], locked[slot]
            now = book.locks.item(pages.item(0))
            if now != before:
                locked[slot] = now
                if not now or not before:
                    book.protected += len(pages) if now else -len(pages)
        mirror.candidate = candidacy(mirror, self.kinds)
