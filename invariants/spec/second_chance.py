"""Two queues on device instead of one order, and a ghost: S3-FIFO, and what declares the same.

What is new stands in the *small* queue, what was used twice there or came back in time in *main*.
A copy at the front may be spared: it goes to the end of main instead of going.
"""

from __future__ import annotations

from .cache import Cache
from .records import DEVICE, Node


def is_used(cache: Cache) -> bool:
    return cache.order.queues is not None


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
    if is_used(cache):
        cache.ghosts = [buried(cache, kind) for kind in range(len(cache.kinds))]
    cache.buried = [[] for _ in cache.kinds]


def buried(cache: Cache, kind: int) -> list[bytes]:
    """The ghost with what this event evicted out of small, the oldest first."""
    queues, fresh = cache.order.queues, cache.buried[kind]
    ghost = [one for one in cache.ghosts[kind] if one not in fresh] + sorted(fresh)
    most = cache.capacity(DEVICE, kind) * queues.ghost // 100 if queues is not None else 0
    return ghost[max(0, len(ghost) - most) :]


def in_small(cache: Cache, kind: int) -> int:
    """Pages in the small queue."""
    return sum(
        len(node.pages(DEVICE, kind))
        for node in cache.nodes()
        if node.has(DEVICE, kind) and not node.main[kind]
    )


def unspared(cache: Cache, kind: int, can_go: list[Node]) -> Node | None:
    """Of these nodes, none of which is garbage, the first that is not spared."""
    queues = cache.order.queues
    while can_go and queues is not None:
        small = in_small(cache, kind)
        main_first = small * 100 < queues.small * cache.capacity(DEVICE, kind)
        queue = [node for node in can_go if node.main[kind] == main_first]
        node = min(queue or can_go, key=lambda node: (node.place[kind], -node.end))
        if node.chances[kind] < (1 if node.main[kind] else queues.uses_to_main):
            return node
        node.chances[kind] = node.chances[kind] - 1 if node.main[kind] else 0
        node.main[kind] = True
        cache.turn += 1
        node.place[kind] = cache.turn
    return None


def _known_by(cache: Cache, node: Node, kind: int) -> list[bytes]:
    digests = cache.digests(node)
    return digests if cache.kinds[kind].per_page else digests[-1:]
