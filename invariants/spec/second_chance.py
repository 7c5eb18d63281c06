"""S3-FIFO: two queues on device instead of one order, and a ghost.

What is new stands in the *small* queue, what was used twice there or came back in time in *main*.
A copy at the front may be spared: it goes to the end of main instead of going.
"""

from __future__ import annotations

from .cache import Cache
from .records import DEVICE, Node

NAME = "s3_fifo"
SMALL_PERCENT, GHOST_PERCENT = 10, 90  # of the pages of the pool
USES_TO_MAIN = 2


def is_used(cache: Cache) -> bool:
    return cache.config.eviction_policy == NAME


def comes(cache: Cache, node: Node, kind: int) -> None:
    """The copy is on device now, at the end of small, or of main if its first page is known."""
    digests = _known_by(cache, node, kind)
    ghost = cache.ghosts[kind]
    node.main[kind] = digests[0] in ghost
    node.chances[kind], node.place[kind] = 0, cache.turn
    if node.main[kind]:
        ghost[:] = [one for one in ghost if one not in digests]


def goes(cache: Cache, node: Node, kind: int) -> None:
    """The copy is evicted from the device."""
    if not node.main[kind]:
        cache.buried[kind] += _known_by(cache, node, kind)


def bury(cache: Cache) -> None:
    """An event begins: the ghost knows what the one before evicted out of small."""
    for kind, buried in enumerate(cache.buried):
        ghost = [one for one in cache.ghosts[kind] if one not in buried] + sorted(buried)
        most = cache.capacity(DEVICE, kind) * GHOST_PERCENT // 100
        cache.ghosts[kind] = ghost[max(0, len(ghost) - most) :]
    cache.buried = [[] for _ in cache.kinds]


def unspared(cache: Cache, kind: int, can_go: list[Node]) -> Node | None:
    """Of these nodes, none of which is garbage, the first that is not spared."""
    while can_go:
        small = sum(
            len(node.pages(DEVICE, kind))
            for node in cache.nodes()
            if node.has(DEVICE, kind) and not node.main[kind]
        )
        main_first = small * 100 < SMALL_PERCENT * cache.capacity(DEVICE, kind)
        queue = [node for node in can_go if node.main[kind] == main_first]
        node = min(queue or can_go, key=lambda node: (node.place[kind], -node.end))
        if node.chances[kind] < (1 if node.main[kind] else USES_TO_MAIN):
            return node
        node.chances[kind] = node.chances[kind] - 1 if node.main[kind] else 0
        node.main[kind] = True
        cache.turn += 1
        node.place[kind] = cache.turn
    return None


def _known_by(cache: Cache, node: Node, kind: int) -> list[bytes]:
    digests = cache.digests(node)
    return digests if cache.kinds[kind].per_page else digests[-1:]
