"""The links of the tree, and where on a path there are copies."""

from __future__ import annotations

from hicache.core.events import AdmitWanted, EvictWanted, PagesWanted
from hicache.core.node import Node
from invariants.base import Check
from invariants.books import story
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror


class TreeLink(Check):
    name = "TREE-LINK"
    sentence = (
        "Parent and child refer to each other, a child is filed under its first row, no two "
        "children share one, and the lengths of key, pages and path agree."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        parent, stride = node.parent, book.nodes.stride
        if len(node.children) != mirror.kids:
            self.fail(
                f"node {node.id}: expected {mirror.kids} children, found {len(node.children)}",
                story.node(node.id),
            )
        if parent is None:
            return
        key, label = node.key, node.label
        span, rest = divmod(len(key), stride)
        if not span or rest or node.end_page != parent.end_page + span:
            self.fail(
                f"node {node.id}: end {node.end_page}, expected parent's end {parent.end_page} + "
                f"{len(key)} bytes of key / {stride}",
                story.node(node.id),
            )
        # keys and labels are immutable, so they agree until one is another
        fresh = mirror.moved or label is not mirror.label
        if (fresh and key[:stride] != label[-stride:]) or (len(label) != stride) != (
            parent.parent is None and mirror.namespace != ""
        ):
            self.fail(
                f"node {node.id}: expected to be filed under its first row"
                f"{' after its namespace' if mirror.namespace else ''}, found {label[:24]!r}",
                story.node(node.id),
            )
        if parent.children.get(label) is not node or mirror.parent is None:
            self.fail(
                f"node {node.id}: its parent {parent.id} holds something else under its label",
                story.node(node.id),
                story.node(parent.id),
            )
        # arrays and keys are immutable, so their lengths agree until one is another
        for slot, pages in enumerate(mirror.pages) if mirror.moved else ():
            if pages is None:
                continue
            wanted = span if book.pages[slot].positional else 1
            if len(pages) != wanted:
                self.fail(
                    f"node {node.id}, {book.pages[slot].where}: expected {wanted} pages, found "
                    f"{len(pages)}",
                    story.node(node.id),
                )


class DeadNode(Check):
    name = "DEAD-NODE"
    sentence = "Every reachable node has pages of full attention on device or on host."

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is not None and node.pages[0][0] is None and node.pages[1][0] is None:
            self.fail(
                f"node {node.id}, {len(node.key)} bytes of key, {len(node.children)} children: "
                "expected pages on a tier, found none",
                story.node(node.id),
            )


_ENDS_NO_LOCK = (EvictWanted, AdmitWanted, PagesWanted)


class DeadLeaf(Check):
    name = "DEAD-LEAF"
    sentence = (
        "A leaf that loses its last live boundary leaves the tree in the same operation, with "
        "everything that it has on every tier, unless it is locked; this is "
        "checked after operations that release no lock."
    )
    of_several = True

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if not book.nodes.died or type(book.event) not in _ENDS_NO_LOCK:
            return  # its holder may have released it since
        if mirror.id not in book.nodes.died or node.children or node.parent is None:
            return
        if not any(mirror.locked):
            self.fail(
                f"leaf {node.id}, end {node.end_page}, lost its last live boundary: expected it to "
                "be gone, found it in the tree",
                story.node(node.id),
            )


class DevicePrefix(Check):
    name = "DEVICE-PREFIX"
    sentence = (
        "The device pages of full attention form a prefix of every path, and no other component "
        "is on device without them."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if mirror.pages[0] is not None:
            return
        if mirror.parent is not None and mirror.kids_on[0]:
            self.fail(
                f"node {node.id} is not on device, {mirror.kids_on[0]} of its children are",
                story.node(node.id),
            )
        if any(mirror.pages[index] is not None for index in range(1, book.width)):
            names = [kind.name for kind in book.kinds[1:] if mirror.pages[kind.at] is not None]
            self.fail(
                f"node {node.id}: {', '.join(names)} on device, full is not", story.node(node.id)
            )


class ParentBackedUp(Check):
    name = "PARENT-BK"
    sentence = (
        "Under a write policy that keeps host copies contiguous, they are so from the root, and no "
        "other component is on host without full attention (write_back does not guarantee this)."
    )

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if not book.writes.contiguous or mirror.parent is None:
            return
        above = mirror.parent
        if (
            node.pages[1][0] is not None
            and above.parent is not None
            and above.pages[book.width] is None
        ):
            self.fail(
                f"node {node.id} has a host copy, its parent {above.id} has none",
                story.node(node.id),
                story.node(above.id),
            )
        if mirror.kids_on[1] and mirror.pages[book.width] is None:
            self.fail(
                f"node {node.id} has no host copy, {mirror.kids_on[1]} of its children have one",
                story.node(node.id),
            )
        if node.pages[1][0] is None and any(pages is not None for pages in node.pages[1]):
            names = [kind.name for kind in book.kinds if node.pages[1][kind.at] is not None]
            self.fail(
                f"node {node.id}: {', '.join(names)} on host, full is not", story.node(node.id)
            )


_MANY = 64  # maximum number of children to check after every operation


class Near(Check):
    name = "NEAR"
    sentence = (
        "A node knows how many pages below its end the nearest live boundary is; it is 0 where "
        "every component has what it requires on the path to that end. A node knows those of its "
        "children that end within the largest window below its end, and no others."
    )
    of_several = True  # with full attention alone, every end is a live boundary

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        if node.parent is None:
            return
        if node.live_distance != mirror.live_distance:
            self.fail(
                f"node {node.id}, end {node.end_page}: expected the nearest live boundary "
                f"{mirror.live_distance} pages below, found {node.live_distance}",
                story.node(node.id),
            )
        if not node.children and not node.children_in_reach:
            return
        most = book.nodes.widest
        if book.history and len(node.children) > _MANY:
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
