"""The shadow state's record of all nodes of the tree, and sums over them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from hicache.core.node import NONE, Node
from hicache.core.types import Rows

from .distances import is_live, presence, update, widest
from .kinds import Kind
from .pages import NODE, PageShadow, code_of
from .record import NodeRecord, candidacy
from .tags import Tags, chain, chain_root, run_tags, seed_of


class Run(NamedTuple):
    """Rows that begin at page `start`, below a prefix with the tag `above`, and their tags."""

    rows: Rows
    start: int
    above: np.uint64
    tags: Tags


class Known(NamedTuple):
    """A node on the path of a prompt, and the depth down to which it has the prompt's pages."""

    record: NodeRecord
    depth: int


class Reach(NamedTuple):
    """Of a prompt, in pages: the boundary on device, the best one, with loads, that of each
    component alone, and how far the tree knows it."""

    device: int
    best: int
    alone: tuple[int, ...]
    known: int


class NodeShadow:
    """All nodes of the tree, and the prefixes that they cache."""

    def __init__(
        self, pages: list[PageShadow], kinds: Sequence[Kind], page_size: int, with_digests: bool
    ) -> None:
        self.pages = pages
        self.kinds = kinds
        self.page_size = page_size
        self.width = width = len(kinds)
        self.widest = widest(kinds)
        self.with_digests = with_digests  # of every node at once, and sets of them
        self.stride = 1  # bytes per key row, known from the first request
        self.root = NodeRecord(0, width)
        self.by_id: dict[int, NodeRecord] = {0: self.root}
        self.at: dict[int, NodeRecord] = {}  # by the tag of the node's last page
        self.first: dict[int, NodeRecord] = {}  # by the tag of the node's first page
        self.digests: tuple[set[bytes], set[bytes]] = (set(), set())
        self.clock = 0
        self.since = 0  # page up to which the request of this operation had used its path before
        self.recounts = 0
        self.at_hand: list[Run] = []  # prompts of this operation, whose tags are known
        self._cut: dict[tuple[int, bytes], Run] = {}  # see `_note`
        self.dirty: dict[int, NodeRecord] = {}
        self.gone: list[NodeRecord] = []
        self.died: set[int] = set()  # unlocked ones that lost a last live boundary or child now
        # By slot and last page there, a node that may have lost it now, and its candidacy before.
        self.lost: dict[tuple[int, int], tuple[NodeRecord, int]] = {}
        self.came = 0  # number of new nodes
        self.turned = 0  # nodes with another live distance since this operation
        self._moved: list[tuple[NodeRecord, Node]] = []

    def retract(self, touched: Mapping[int, Node], root: Node) -> None:
        """First half of an operation: retracts all changed facts."""
        for record, _ in self._moved:
            record.moved = False
        self.dirty, self.gone, self._moved, self._cut, self.lost = {}, [], [], {}, {}
        self.came = self.turned = 0
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
                self._moved.append((NodeRecord(node_id, self.width), node))
            else:
                self.dirty[node_id] = known
                if (
                    node.key is not known.key
                    or known.parent is None
                    or parent.id != known.parent.id
                    or node.pages is not known.last_pages
                ):
                    if node.key is not known.key:
                        self._note(known)
                    self._take_out(known, node if node.key is known.key else None)
                    self._moved.append((known, node))

    def _note(self, record: NodeRecord) -> None:
        """Keeps the run of a node that goes or gets another key, as it was before this operation:
        where it is split, a new node has a part of it. By the tag above it and its first row."""
        parent = record.parent
        if parent is None or not len(record.tags):
            return
        above = self._end(parent, record.namespace)
        run = Run(record.key, record.end_page - record.span, above, record.tags)
        self._cut[int(above), bytes(record.key[: self.stride])] = run

    def _end(self, parent: NodeRecord, namespace: str) -> np.uint64:
        """The tag of the prefix down to the end of a node."""
        below_root = parent is self.root or not len(parent.tags)
        return seed_of(namespace) if below_root else parent.tags[-1]

    def _take_out(self, record: NodeRecord, keep: Node | None) -> None:
        """Retracts the slots whose pages differ from those of `keep`."""
        now = (*keep.pages[0], *keep.pages[1]) if keep is not None else ()
        for slot, before in enumerate(record.pages):
            if before is None or (now and now[slot] is before):
                continue
            tier, index = divmod(slot, self.width)
            shadow = self.pages[slot]
            self.lost[slot, before.item(-1)] = record, record.candidate
            shadow.retract(before, code_of(NODE, record.id))
            if record.locked[slot]:
                shadow.protected -= len(before)
                record.locked[slot] = 0
            record.pages[slot] = None
            if index:
                continue
            if self.with_digests and record.digests is not None:
                self.digests[tier].difference_update(record.digests)
            if record.parent is not None:
                record.parent.kids_on[tier] -= 1
                self._mark(record.parent)

    def _mark(self, record: NodeRecord) -> None:
        if self.by_id.get(record.id) is record:
            self.dirty[record.id] = record

    def _unlink(self, record: NodeRecord) -> None:
        self.by_id.pop(record.id, None)
        self.dirty.pop(record.id, None)
        self._unplace(record)
        if record.parent is not None:
            record.parent.kids -= 1
            self._mark(record.parent)
        record.candidate = 0
        self.gone.append(record)

    def claim(self) -> None:
        """Second half: claims the present facts, parents before children."""
        moved = self._moved
        if len(moved) > 1:
            moved.sort(key=lambda pair: pair[1].end_page)
        for record, node in moved:
            if record.id not in self.by_id:
                self.came += 1
                record.use = node.last_use[0]
            self.by_id[record.id] = record
            self.dirty[record.id] = record
            record.moved = True
            self._place(record, node)
        for record, node in moved:
            arrays, record.last_pages = record.pages, node.pages
            for slot, now in enumerate((*node.pages[0], *node.pages[1])):
                if now is None or arrays[slot] is now:
                    continue
                arrays[slot] = now
                self.pages[slot].claim(now, code_of(NODE, record.id))
                tier, index = divmod(slot, self.width)
                if index:
                    continue
                if self.with_digests and record.digests is not None:
                    self.digests[tier].update(record.digests)
                if record.parent is not None:
                    record.parent.kids_on[tier] += 1
                    self.dirty[record.parent.id] = record.parent
        self._measure()

    def _measure(self) -> None:
        """Updates the distances to live boundaries after nodes came, went or changed pages."""
        changed = []
        if self.widest < 0:  # every end is a live boundary
            for record, _ in self._moved:
                record.live_distance = 0
            return
        for record, _ in self._moved:
            there = presence(record, self.width)
            if there != record.there:
                record.there = there
                changed.append(record)
        parents = [record.parent for record in (*self.gone, *changed)]
        above = [record for record in parents if record is not None]
        if not changed and not above:
            return
        turned = update(self.by_id, changed, above, self.kinds, self.widest)
        self.turned = len(turned)
        self.dirty.update((record.id, record) for record in turned)
        for record in (*turned, *above):
            if record.live_distance == NONE and not any(record.locked) and record is not self.root:
                self.died.add(record.id)

    def _place(self, record: NodeRecord, node: Node) -> None:
        """Files the parent, the key and the facts that follow from the key."""
        record.node = node
        parent = self.by_id.get(node.parent.id) if node.parent is not None else None
        if parent is not record.parent:
            if record.parent is not None:
                record.parent.kids -= 1
                for tier in (0, 1):
                    record.parent.kids_on[tier] -= record.pages[tier * self.width] is not None
                self._mark(record.parent)
            if parent is not None:
                parent.kids += 1
                for tier in (0, 1):
                    parent.kids_on[tier] += record.pages[tier * self.width] is not None
                self.dirty[parent.id] = parent
            record.parent = parent
        if node.key is not record.key:
            self._rekey(record, node, parent)
        record.label = node.label

    def _rekey(self, record: NodeRecord, node: Node, parent: NodeRecord | None) -> None:
        key, end = bytes(node.key), node.end_page
        old = bytes(record.key) if len(record.tags) else b""
        self._unplace(record)
        record.namespace, above = self._above(node, parent)
        pages = len(key) // self.stride
        if not old:
            first = -1
        elif end == record.end_page and len(key) <= len(old) and old.endswith(key):
            first = len(record.tags) - pages
        elif end - pages == record.end_page - len(record.tags) and pages and old.startswith(key):
            first = 0
        else:
            first = -1
        if first >= 0:
            record.tags = record.tags[first : first + pages]
            if record.digests is not None:
                record.digests = record.digests[first : first + pages]
        else:
            start = parent.end_page if parent is not None else 0
            record.tags = self._tags(key, start, above)
            record.digests = None
        record.key, record.end_page, record.span = node.key, end, pages
        if len(record.tags):
            self.at[record.tags.item(-1)] = record
            self.first[record.tags.item(0)] = record
        if self.with_digests:
            self.digests_of(record)

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

    def _unplace(self, record: NodeRecord) -> None:
        if len(record.tags):
            for places, tag in ((self.at, record.tags.item(-1)), (self.first, record.tags.item(0))):
                if places.get(tag) is record:
                    del places[tag]

    def _above(self, node: Node, parent: NodeRecord | None) -> tuple[str, np.uint64]:
        """Returns the namespace of a node, and the tag of the prefix above it."""
        if parent is not None and parent is not self.root:
            return parent.namespace, self._end(parent, parent.namespace)
        namespace = node.label[: -self.stride].rstrip(b"\0").decode()
        return namespace, seed_of(namespace)

    def digests_of(self, record: NodeRecord) -> tuple[bytes, ...]:
        """The digests of the node's pages, computed when they are first asked for."""
        unknown = []
        step: NodeRecord | None = record
        while step is not None and step.digests is None and step is not self.root:
            unknown.append(step)
            step = step.parent
        above = step.digests[-1] if step is not None and step.digests else b""
        for item in reversed(unknown):
            before = above or chain_root(item.namespace)
            item.digests = chain(before, bytes(item.key), self.stride)
            above = item.digests[-1] if item.digests else b""
        return record.digests or ()

    def path_of(self, tags: Tags) -> list[Known]:
        """The nodes from the root down that share a page with a prompt."""
        path: list[Known] = []
        at = 0
        while at < len(tags) and (record := self.first.get(tags.item(at))) is not None:
            run = tags[at : at + record.span]
            at += int(np.count_nonzero(record.tags[: len(run)] == run))
            path.append(Known(record, at))
            if at < record.end_page:
                break
        return path

    def reach(self, tags: Tags) -> Reach:
        """How far a prompt is known, and how deep a request could start that has it."""
        path, kinds, width = self.path_of(tags), self.kinds, self.width

        def deepest(kinds: Sequence[Kind], host: int = width) -> int:
            ends = (end for record, end in reversed(path) if is_live(record, kinds, host, end))
            return next(ends, 0)

        alone = tuple(deepest([kind]) for kind in kinds)
        return Reach(deepest(kinds, 0), deepest(kinds), alone, path[-1].depth if path else 0)

    def used(self, tag: int) -> bool:
        """Files a use of the prefix with this tag. Returns False if no node ends with it."""
        step = self.at.get(tag)
        if step is None:
            return False
        while step is not None and step is not self.root:
            step.use = self.clock
            step.hits += step.hits >= 0 and step.end_page > self.since
            self.dirty[step.id] = step
            step = step.parent
        return True

    def left(self, tags: Tags) -> None:
        """Files that a request committed this prefix and left: it has used the path down to some
        node, which is the deepest one that the core counts as used."""
        for tag in tags[::-1].tolist():
            record = self.at.get(tag)
            node = None if record is None else record.node
            if node is not None and node.last_use[0] == self.clock:
                self.used(tag)
                return

    def path(self, node_id: int) -> list[NodeRecord]:
        """Nodes from this one up to the child of the root."""
        step = self.by_id.get(node_id)
        above: list[NodeRecord] = []
        while step is not None and step is not self.root:
            above.append(step)
            step = step.parent
        return above

    def required(self, index: int, tag: int) -> list[NodeRecord]:
        """Nodes, deepest first, that the boundary with this tag requires of a component."""
        step = self.at.get(tag)
        records: list[NodeRecord] = []
        if step is None:
            return records
        end, need = step.end_page, self.kinds[index].need
        while step is not None and step is not self.root and end - step.end_page < need:
            records.append(step)
            step = step.parent
        return records

    def refresh(self, record: NodeRecord) -> None:
        """Updates locks and candidacy from the page shadow state, after everything is recorded."""
        locked, shadows = record.locked, self.pages
        for slot, pages in enumerate(record.pages):
            if pages is None or not len(pages):
                locked[slot] = 0
                continue
            shadow, before = shadows[slot], locked[slot]
            now = shadow.locks.item(pages.item(0))
            if now != before:
                locked[slot] = now
                if not now or not before:
                    shadow.protected += len(pages) if now else -len(pages)
        record.candidate = candidacy(record, self.kinds)
