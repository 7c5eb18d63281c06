"""The links and lengths of the tree are consistent."""

from __future__ import annotations

from hicache.core.radix.node import Node
from invariants.base import Check
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.story import node as node_story


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
                node_story(node.id),
            )
        if parent is None:
            return
        key, label = node.key, node.label
        span = len(key) // stride
        if not key or len(key) % stride or node.end_page != parent.end_page + span:
            self.fail(
                f"node {node.id}: end {node.end_page}, expected parent's end {parent.end_page} + "
                f"{len(key)} bytes of key / {stride}",
                node_story(node.id),
            )
        own = label[-stride:]
        if not key.startswith(own) or (len(label) != stride) != (
            parent.parent is None and mirror.namespace != ""
        ):
            self.fail(
                f"node {node.id}: expected to be filed under its first row"
                f"{' after its namespace' if mirror.namespace else ''}, found {label[:24]!r}",
                node_story(node.id),
            )
        if parent.children.get(label) is not node or mirror.parent is None:
            self.fail(
                f"node {node.id}: its parent {parent.id} holds something else under its label",
                node_story(node.id),
                node_story(parent.id),
            )
        for slot, pages in enumerate(mirror.pages):
            if pages is None:
                continue
            wanted = span if book.pages[slot].positional else 1
            if len(pages) != wanted:
                self.fail(
                    f"node {node.id}, {book.pages[slot].where}: expected {wanted} pages, found "
                    f"{len(pages)}",
                    node_story(node.id),
                )


def check() -> TreeLink:
    return TreeLink()
