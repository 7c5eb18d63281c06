"""Which prefix every node of a tree stands for, spelled out from the root."""

from __future__ import annotations

from hicache.core.node import Node
from hicache.core.view import CoreView


def spelled(view: CoreView, stride: int) -> list[tuple[Node, str, bytes]]:
    """Every node with its namespace and the rows from the root to its end."""
    paths: dict[int, tuple[str, bytes]] = {}
    found = []
    for node in view.nodes():
        above = node.parent
        assert above is not None
        if above.parent is None:
            namespace, path = node.label[:-stride].rstrip(b"\0").decode(), b""
        else:
            namespace, path = paths[above.id]
        paths[node.id] = (namespace, path + node.key)
        found.append((node, *paths[node.id]))
    return found
