"""Mirrors of nodes: one node as the books know it, and what follows from one alone.

Lives here: the record, candidacy for eviction by definition, and validity on device. Must not live
here: sums over nodes (`nodes`), verdicts, or a look into the core's own sums (`with_pages`,
`queued`, counts), which checks compare with these.

Per (tier, component) there is one *slot*: tier * components + component, the device's first. Lists
of a mirror are indexed by slot, lists of uses by component, bits of `candidate` by 3 * component +
queue.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.radix.node import NONE, Node
from hicache.core.types import Pages

from .kinds import Kind
from .tags import NO_TAGS, Tags

DEVICE, HOST, DUPLICATE = 0, 1, 2  # eviction queues of a component; the first two are also tiers
Key = tuple[int, ...]  # what an order of eviction compares (see orders)
Rank = tuple[bool, Key]  # how soon a copy is to go: first what serves no live boundary


class NodeMirror:
    """One node as the books know it."""

    __slots__ = (
        "candidate",
        "changed",
        "digests",
        "end_page",
        "gave",
        "hits",
        "id",
        "inserted",
        "key",
        "kids",
        "kids_on",
        "label",
        "live_distance",
        "locked",
        "namespace",
        "node",
        "pages",
        "parent",
        "priority",
        "rank",
        "span",
        "tags",
        "use",
    )

    def __init__(self, node_id: int, width: int) -> None:
        self.id = node_id
        self.node: Node | None = None  # the record it mirrors
        self.parent: NodeMirror | None = None
        self.key = b""
        self.label = b""
        self.namespace = ""
        self.end_page = 0
        self.span = 0  # pages of the run
        self.pages: list[Pages | None] = [None] * (2 * width)
        self.gave: list[Pages | None] = [None, None]  # of the backbone, what it had on each tier
        # if it gave it up in this operation
        self.locked = [0] * (2 * width)  # holders expected in each slot
        self.tags: Tags = NO_TAGS
        self.digests: tuple[bytes, ...] | None = None
        self.kids = 0
        self.kids_on = [0, 0]  # children that have the backbone on each tier
        self.use = [0] * width
        self.inserted = 0  # the clock when it came into the tree
        self.hits = 0  # requests that used it
        self.priority = 0  # the highest of those
        self.live_distance = NONE  # as the record had it after the last operation
        self.rank: list[Rank | None] = [None] * width  # None before the first look at it
        self.changed = False  # what its rank follows from, since its rank was computed
        self.candidate = 0  # bit 3 * c + q: could be evicted from queue q of component c now


def serves(kind: Kind, near: int) -> bool:
    """Whether a copy serves a live boundary `near` pages below its node's end, or at it."""
    return near < kind.need


def valid(mirror: NodeMirror, kinds: Sequence[Kind]) -> bool:
    """Whether all that the node's end requires is on device."""
    for kind in kinds:
        step = mirror
        while step.parent is not None and mirror.end_page - step.end_page < kind.need:
            if step.pages[kind.at] is None:
                return False
            step = step.parent
    return True


def candidacy(mirror: NodeMirror, width: int) -> int:
    """Which eviction queues the node belongs in, by definition: of the backbone a leaf only, of
    any other component every copy that nobody locks."""
    if mirror.parent is None:
        return 0
    pages, locked = mirror.pages, mirror.locked
    bits = 0
    if pages[0] is not None and not mirror.kids_on[0] and not locked[0]:
        bits = 1 << DEVICE
    if pages[width] is not None and not mirror.kids_on[1] and not locked[width]:
        twice = all(pages[at] is not None or pages[width + at] is None for at in range(width))
        bits |= 1 << (DUPLICATE if twice else HOST)
    for index in range(1, width):
        on_device = pages[index] is not None
        if on_device and not locked[index]:
            bits |= 1 << 3 * index + DEVICE
        if pages[width + index] is not None and not locked[width + index]:
            bits |= 1 << 3 * index + (DUPLICATE if on_device else HOST)
    return bits


def differ(mirror: NodeMirror, node: Node) -> bool:
    """Whether the node holds other pages than its mirror, in any slot."""
    slot = 0
    for tier in node.pages:
        for held in tier:
            if held is not mirror.pages[slot]:
                return True
            slot += 1
    return False
