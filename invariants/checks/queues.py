"""The eviction queues, the logical clock and the last use of nodes."""

from collections.abc import Iterator
from typing import ClassVar

from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.shadow import story
from invariants.shadow.record import ALSO_ON_DEVICE, DEVICE, HOST, NodeRecord
from invariants.shadow.shadow import Shadow

_NAMES = ("candidate on device", "candidate on host", "host copy also on device")


class _Queues(Check):
    """The queues of some components: who can be evicted has an entry in the right part."""

    queues: ClassVar[tuple[int, ...]]

    def kinds(self, shadow: Shadow) -> range:
        """The components, by index, of whose queues this is said."""
        return range(1, shadow.width)

    def _ours(self, shadow: Shadow, parts: int) -> Iterator[int]:
        """Those of these parts, given as bits, that are of the queues of this check."""
        for at in self.kinds(shadow):
            for queue in self.queues:
                first = 6 * at + 2 * queue
                yield from (part for part in (first, first + 1) if parts >> part & 1)

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        missing = record.candidate & ~node.queued
        if not missing:
            return
        for part in self._ours(shadow, missing):
            parts = [index for index in range(6 * shadow.width) if node.queued >> index & 1]
            self.fail(
                f"node {node.id} is a {_NAMES[part // 2 % 3]} of {shadow.kinds[part // 6].name}, "
                f"{'unreachable' if part % 2 else 'which serves'}: expected an entry in part "
                f"{part}, found parts {parts}",
                story.node(node.id),
            )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        for part in self._ours(shadow, -1):
            known = {*shadow.nodes.queues[part].members}
            for record in shadow.nodes.by_id.values():
                if record.candidate >> part & 1 and record.id not in known:
                    self.fail(
                        f"node {record.id} is a {_NAMES[part // 2 % 3]} of "
                        f"{shadow.kinds[part // 6].name}: expected in part {part}, found "
                        f"{len(known)} other entries",
                        story.node(record.id),
                    )


class LeafSet(_Queues):
    name = "LEAF-SET"
    sentence = (
        "The unlocked nodes without a child on their tier are exactly those that eviction can "
        "find, and each node knows its children on each tier."
    )
    queues = (DEVICE, HOST, ALSO_ON_DEVICE)

    def kinds(self, shadow: Shadow) -> range:
        return range(1)

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if node.with_pages[0] != record.kids_on[0] or node.with_pages[1] != record.kids_on[1]:
            self.fail(
                f"node {node.id}: expected {record.kids_on} children on (device, host), found "
                f"{[*node.with_pages]}",
                story.node(node.id),
            )
        if record.candidate & ~node.queued:
            super().node(shadow, record, node)


class DeviceLru(_Queues):
    name = "DLRU"
    sentence = (
        "The device queue of a component other than full attention holds exactly its unlocked "
        "device copies, with unreachable ones in the part that is evicted first."
    )
    queues = (DEVICE,)
    of_several = True


class HostLru(_Queues):
    name = "HLRU"
    sentence = (
        "The host queues of a component other than full attention hold exactly its unlocked host "
        "copies, with host-only ones apart, and with unreachable ones in the part that "
        "is evicted first."
    )
    queues = (HOST, ALSO_ON_DEVICE)
    of_several = True


class Lru(Check):
    name = "LRU"
    sentence = (
        "The last use of a node is the tick of the last admission or insertion on its path, and no "
        "component of it was used later; a queue holds a node at most once, and not behind its "
        "rank, which only grows."
    )

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if node.parent is None:
            return
        if node.last_use[0] != record.use or (shadow.width > 1 and max(node.last_use) > record.use):
            self.fail(
                f"node {node.id}: expected last use {record.use}, and none of another component "
                f"after it, found {node.last_use}",
                story.node(node.id),
            )

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        if view.tick != shadow.nodes.clock:
            self.fail(f"ticks: expected {shadow.nodes.clock}, found {view.tick}")
        for kind in shadow.kinds:
            for part in range(6):
                self._queue(shadow, view, f"{kind.name} queue {part // 2}", 6 * kind.at + part)

    def _queue(self, shadow: Shadow, view: CoreView, name: str, part: int) -> None:
        ranks, members = shadow.nodes.queues[part]
        if len(set(members)) != len(members):
            twice = next(member for member in members if members.count(member) > 1)
            self.fail(
                f"{name}: expected node {twice} once, found {members.count(twice)} times",
                story.node(twice),
            )
        for rank, node_id in zip(ranks, members, strict=True):
            record = shadow.nodes.by_id.get(node_id)
            node = record.node if record is not None else None
            if node is None:
                continue
            if not node.queued >> part & 1:
                self.fail(f"{name} has node {node_id}, which does not know it", story.node(node_id))
            now = view.eviction.rank(node, part // 6)
            if rank > now:
                self.fail(
                    f"{name}: expected node {node_id} at rank {now} or before, found {rank}; "
                    f"either the queue is wrong, or a rank of {view.eviction.name} fell",
                    story.node(node_id),
                )


CHECKS = (LeafSet, DeviceLru, HostLru, Lru)
