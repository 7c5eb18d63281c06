"""The links of the tree, and where on a path there are copies."""

from typing import Any

from hicache.core.actions import Backup, Cached, Evicted, Refused
from hicache.core.events import Finished, Retracted, TimePassed
from hicache.core.node import BACKUP, Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.shadow import story
from invariants.shadow.record import NodeRecord
from invariants.shadow.shadow import Shadow


class TreeLink(Check):
    name = "TREE-LINK"
    sentence = (
        "Parent and child refer to each other, a child is filed under its first row, no two "
        "children share one, and the lengths of key, pages and path agree."
    )

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        parent, stride = node.parent, shadow.nodes.stride
        if len(node.children) != record.kids:
            self.fail(
                f"node {node.id}: expected {record.kids} children, found {len(node.children)}",
                story.node(node.id),
            )
        if parent is None:
            return
        key, label = node.key, node.label
        # keys, labels and arrays are immutable, so they agree until one is another
        if (
            key is record.key
            and label is record.label
            and not record.moved
            and parent.end_page + record.span == node.end_page == record.end_page
            and parent.children.get(label) is node
        ):
            return
        span, rest = divmod(len(key), stride)
        if not span or rest or node.end_page != parent.end_page + span:
            self.fail(
                f"node {node.id}: end {node.end_page}, expected parent's end {parent.end_page} + "
                f"{len(key)} bytes of key / {stride}",
                story.node(node.id),
            )
        if key[:stride] != label[-stride:] or (len(label) != stride) != (
            parent.parent is None and record.namespace != ""
        ):
            self.fail(
                f"node {node.id}: expected to be filed under its first row"
                f"{' after its namespace' if record.namespace else ''}, found {label[:24]!r}",
                story.node(node.id),
            )
        if parent.children.get(label) is not node or record.parent is None:
            self.fail(
                f"node {node.id}: its parent {parent.id} holds something else under its label",
                story.node(node.id),
                story.node(parent.id),
            )
        for slot, pages in enumerate(record.pages):
            if pages is None:
                continue
            wanted = span if shadow.pages[slot].positional else 1
            if len(pages) != wanted:
                self.fail(
                    f"node {node.id}, {shadow.pages[slot].where}: expected {wanted} pages, found "
                    f"{len(pages)}",
                    story.node(node.id),
                )


class DeadNode(Check):
    name = "DEAD-NODE"
    sentence = "Every reachable node has pages of full attention on device or on host."

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if node.parent is not None and node.pages[0][0] is None and node.pages[1][0] is None:
            self.fail(
                f"node {node.id}, {len(node.key)} bytes of key, {len(node.children)} children: "
                "expected pages on a tier, found none",
                story.node(node.id),
            )


class DeadLeaf(Check):
    name = "DEAD-LEAF"
    sentence = (
        "A leaf that loses its last live boundary, and a node without one that loses its last "
        "child, leave the tree in the same operation, with everything that they have on every "
        "tier, unless they are or were locked."
    )
    of_several = True

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if record.id not in shadow.nodes.died or node.children or any(record.locked):
            return
        self.fail(
            f"leaf {node.id}, end {node.end_page}, has no live boundary any more: expected it to "
            "be gone, found it in the tree",
            story.node(node.id),
        )


class DevicePrefix(Check):
    name = "DEVICE-PREFIX"
    sentence = (
        "The device pages of full attention form a prefix of every path, and no other component "
        "is on device without them."
    )

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if record.pages[0] is not None:
            return
        if record.parent is not None and record.kids_on[0]:
            self.fail(
                f"node {node.id} is not on device, {record.kids_on[0]} of its children are",
                story.node(node.id),
            )
        if any(record.pages[index] is not None for index in range(1, shadow.width)):
            names = [kind.name for kind in shadow.kinds[1:] if record.pages[kind.at] is not None]
            self.fail(
                f"node {node.id}: {', '.join(names)} on device, full is not", story.node(node.id)
            )


class ParentBackedUp(Check):
    name = "PARENT-BK"
    sentence = (
        "Under a write policy that keeps host copies contiguous, they are so from the root, and no "
        "other component is on host without full attention. What enough requests used, or "
        "write_back evicts, is copied while host has room."
    )
    items = (Cached, Finished, Retracted, Evicted)

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if not shadow.writes.contiguous or record.parent is None:
            return
        if record.kids_on[1] and record.pages[shadow.width] is None:
            self.fail(
                f"node {node.id} has no host copy, {record.kids_on[1]} of its children have one",
                story.node(node.id),
            )
        if node.pages[1][0] is None and any(pages is not None for pages in node.pages[1]):
            names = [kind.name for kind in shadow.kinds if node.pages[1][kind.at] is not None]
            self.fail(
                f"node {node.id}: {', '.join(names)} on host, full is not", story.node(node.id)
            )

    def after(self, shadow: Shadow, item: Any, view: CoreView) -> None:
        """Looks at what full attention alone lacks on the path that was used now."""
        if isinstance(item, Evicted):
            self._evicted(shadow, item)
            return
        req, transfers = shadow.requests.by_id.get(item.request), shadow.transfers
        tags = req.tags[: item.pages] if req and type(item) is Cached else shadow.left
        before = [each for each in transfers.open.values() if each not in transfers.fresh]
        busy = sum(type(each.action) is Backup for each in before) >= shadow.config.max_backups
        if shadow.width > 1 or not shadow.writes.threshold or busy or tags is None:
            return
        free = shadow.host.pool.available - len(tags)
        for record, _ in shadow.nodes.path_of(tags):
            node = record.node
            if node is None or record.pages[1] is not None or record.pages[0] is None:
                continue
            if not any(segment.transfer.kind is BACKUP for segment in node.segments):
                if node.hits < shadow.writes.threshold or record.span > free:
                    break
                self.fail(f"node {node.id} is not copied to host", story.node(node.id))

    def _evicted(self, shadow: Shadow, item: Evicted) -> None:
        """With write_back, what leaves the device uncopied found no room on host."""
        record, _ = shadow.nodes.lost.get((0, item.pages.item(-1)), (None, 0))
        others = {type(shadow.event), *map(type, shadow.outcomes)}
        if item.tier or item.demoted or shadow.width > 1 or others & {TimePassed, Refused}:
            return
        node = record.node if record is not None and shadow.writes.on_evict else None
        evicted = [each for each in shadow.outcomes if type(each) is Evicted and each.tier]
        dropped = sum(len(each.pages) for each in evicted)  # with their node, though locked before
        free = shadow.host.pool.available - sum(shadow.config.exchange_pages) - dropped
        if node is not None and not node.host_refused and node.end_page + len(item.pages) < free:
            self.fail(f"node {node.id} left the device without a copy", story.node(node.id))


_MANY = 64  # maximum number of children to check after every operation


class Near(Check):
    name = "NEAR"
    sentence = (
        "A node knows how many pages below its end the nearest live boundary is; it is 0 where "
        "every component has what it requires on the path to that end. A node knows those of its "
        "children that end within the largest window below its end, and no others."
    )
    of_several = True  # with full attention alone, every end is a live boundary

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if node.parent is None:
            return
        if node.live_distance != record.live_distance:
            self.fail(
                f"node {node.id}, end {node.end_page}: expected the nearest live boundary "
                f"{record.live_distance} pages below, found {node.live_distance}",
                story.node(node.id),
            )
        if not node.children and not node.children_in_reach:
            return
        most = shadow.nodes.widest
        if shadow.history and len(node.children) > _MANY:
            return  # a recount compares all of them
        close = {
            child.id for child in node.children.values() if child.end_page - node.end_page <= most
        }
        if node.children_in_reach.keys() != close:
            self.fail(
                f"node {node.id}, end {node.end_page}: expected the close children "
                f"{sorted(close)}, found {sorted(node.children_in_reach)}",
                story.node(node.id),
            )


CHECKS = (TreeLink, DeadNode, DeadLeaf, DevicePrefix, ParentBackedUp, Near)
