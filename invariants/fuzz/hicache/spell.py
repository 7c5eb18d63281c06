"""Computes the prefix of every node of a tree, from the root."""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView

TOKEN = 8  # bytes


def spelled(view: CoreView, stride: int) -> list[tuple[Node, str, bytes]]:
    """Returns every node with its namespace and the rows from the root to its end."""
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


def tokens_of(path: bytes, pairs: bool) -> list[int]:
    """Returns the tokens of rows; of a token pair, the second one."""
    row = 2 * TOKEN if pairs else TOKEN
    return [
        int.from_bytes(path[at - TOKEN : at], "little") for at in range(row, len(path) + 1, row)
    ]


def cached(view: CoreView, page_size: int, pairs: bool, tier: Tier) -> list[tuple[bytes, str]]:
    """Returns the rows of the prefixes with a copy of any component on this tier, with their
    namespaces.
    """
    stride = page_size * TOKEN * (2 if pairs else 1)
    return [
        (path, namespace)
        for node, namespace, path in spelled(view, stride)
        if any(pages is not None for pages in node.pages[tier])
    ]


def on_host_alone(view: CoreView, page_size: int, pairs: bool) -> list[tuple[bytes, str]]:
    """Returns the rows of the prefixes that a request must load, with their namespaces."""
    stride = page_size * TOKEN * (2 if pairs else 1)
    return [
        (path, namespace)
        for node, namespace, path in spelled(view, stride)
        if node.pages[Tier.DEVICE][0] is None
    ]
