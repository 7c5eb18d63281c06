"""The digests of cached pages, which storage and routers know them by.

Lives here: computing them for all nodes, when storage is attached at run time. See nodes for those
of new nodes.
"""

from __future__ import annotations

from .nodes import NodeBook
from .tags import chain


def know_digests(nodes: NodeBook) -> None:
    """Computes the digests of all nodes, if they were not computed so far."""
    if nodes.with_digests:
        return
    nodes.with_digests = True
    for mirror in sorted(nodes.by_id.values(), key=lambda one: one.end_page):
        if mirror is nodes.root:
            continue
        above = nodes.digest_above(mirror, mirror.parent)
        mirror.digests = chain(above, mirror.key, nodes.stride)
        for tier in (0, 1):
            if mirror.pages[tier * nodes.width] is not None:
                nodes.digests[tier].update(mirror.digests)
