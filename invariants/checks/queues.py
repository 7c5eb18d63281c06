"""The eviction queues, the logical clock and the last use of nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.mirror import DEVICE, DUPLICATE, HOST, NodeMirror

_NAMES = ("candidate on device", "candidate on host", "duplicate")


class _Queues(Check):
    """The queues of some components: who can be evicted has an entry in the right part."""

    queues: ClassVar[tuple[int, ...]]

    def kinds(self, book: Book) -> range:
        """The components, by index, of whose queues this is said."""
        return range(1, book.width)

    def _ours(self, book: Book, parts: int) -> Iterator[int]:
        """Those of these parts, given as bits, that are of the queues of this check."""
        for at in self.kinds(book):
            for queue in self.queues:
                first = 6 * at + 2 * queue
                yield from (part for part in (first, first + 1) if parts >> part & 1)

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        missing = mirror.candidate & ~node.queued
        if not missing:
            return
        for part in self._ours(book, missing):
            parts = [one for one in range(6 * book.width) if node.queued >> one & 1]
            self.fail(
                f"node {node.id} is a {_NAMES[part // 2 % 3]} of {book.kinds[part // 6].name}, "
                f"{'garbage' if part % 2 else 'which serves'}: expected an entry in part "
                f"{part}, found parts {parts}",
                story.node(node.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        for part in self._ours(book, -1):
            known = {*book.nodes.queues[part].members}
            for mirror in book.nodes.by_id.values():
                if mirror.candidate >> part & 1 and mirror.id not in known:
                    self.fail(
                        f"node {mirror.id} is a {_NAMES[part // 2 % 3]} of "
                        f"{book.kinds[part // 6].name}: expected in part {part}, found "
                        f"{len(known)} other entries",
                        story.node(mirror.id),
                    )


class LeafSet(_Queues):
    name = "LEAF-SET"
    sentence = (
        "The unlocked nodes without a child on their tier are exactly those that eviction can "
        "find, and each node knows its children on each tier."
    )
    queues = (DEVICE, HOST, DUPLICATE)

    def kinds(self, book: Book) -> range:
        return range(1)

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.with_pages[0] != mirror.kids_on[0] or node.with_pages[1] != mirror.kids_on[1]:
            self.fail(
                f"node {node.id}: expected {mirror.kids_on} children on (device, host), found "
                f"{[*node.with_pages]}",
                story.node(node.id),
            )
        if mirror.candidate & ~node.queued:
            super().node(book, mirror, node)


class DeviceLru(_Queues):
    name = "DLRU"
    sentence = (
        "The device queue of a component other than full attention holds exactly its unlocked "
        "device copies, with garbage in the part that is evicted first."
    )
    queues = (DEVICE,)
    of_several = True


class HostLru(_Queues):
    name = "HLRU"
    sentence = (
        "The host queues of a component other than full attention hold exactly its unlocked host "
        "copies, with host-only copies apart from duplicates, and with garbage in the part that "
        "is evicted first."
    )
    queues = (HOST, DUPLICATE)
    of_several = True


class Lru(Check):
    name = "LRU"
    sentence = (
        "The last use of a node is the tick of the last admission or insertion on its path, and no "
        "component of it was used later; a queue holds a node at most once, and not behind its "
        "rank, which only grows."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None:
            return
        if node.last_use[0] != mirror.use or (book.width > 1 and max(node.last_use) > mirror.use):
            self.fail(
                f"node {node.id}: expected last use {mirror.use}, and none of another component "
                f"after it, found {node.last_use}",
                story.node(node.id),
            )

    def audit(self, book: Book, view: CoreView) -> None:
        if view.tick != book.nodes.clock:
            self.fail(f"ticks: expected {book.nodes.clock}, found {view.tick}")
        for kind in book.kinds:
            for part in range(6):
                self._queue(book, view, f"{kind.name} queue {part // 2}", 6 * kind.at + part)

    def _queue(self, book: Book, view: CoreView, name: str, part: int) -> None:
        ranks, members = book.nodes.queues[part]
        if len(set(members)) != len(members):
            twice = next(one for one in members if members.count(one) > 1)
            self.fail(
                f"{name}: expected node {twice} once, found {members.count(twice)} times",
                story.node(twice),
            )
        for rank, node_id in zip(ranks, members, strict=True):
            mirror = book.nodes.by_id.get(node_id)
            record = mirror.node if mirror is not None else None
            if record is None:
                continue
            if not record.queued >> part & 1:
                self.fail(f"{name} has node {node_id}, which does not know it", story.node(node_id))
            now = view.eviction.rank(record, part // 6)
            if rank > now:
                self.fail(
                    f"{name}: expected node {node_id} at rank {now} or before, found {rank}; "
                    f"either the queue is wrong, or a rank of {view.eviction.name} fell",
                    story.node(node_id),
                )


CHECKS = (LeafSet, DeviceLru, HostLru, Lru)
