"""Records of nodes: the shadow state's record of one node.

Lives here: the record, and the definition of eviction candidates, which checks compare with the
core's own sums (`with_pages`, `queued`, counts).

Each (tier, component) has one *slot*: tier * components + component, device first. Lists of a
record are indexed by slot, bits of `candidate` by 6 * component + 2 * queue, plus 1 if unreachable.
"""

from collections.abc import Sequence

from hicache.core.node import NONE, Node
from hicache.core.types import Pages, Rows

from .kinds import Kind
from .tags import NO_TAGS, Tags

DEVICE, HOST, ALSO_ON_DEVICE = 0, 1, 2  # eviction queues of a component, as in lru


class NodeRecord:
    """The shadow state's record of one node."""

    __slots__ = (
        *("candidate", "digests", "end_page", "hits", "id", "key", "kids", "kids_on"),
        *("label", "last_pages", "live_distance", "locked", "moved", "namespace"),
        *("node", "pages", "parent", "span", "tags", "there", "use"),
    )

    def __init__(self, node_id: int, width: int) -> None:
        self.id = node_id
        self.node: Node | None = None  # the core's record
        self.parent: NodeRecord | None = None
        self.key: Rows = b""
        self.label = b""
        self.namespace = ""
        self.end_page = 0
        self.span = 0  # pages of the run
        self.pages: list[Pages | None] = [None] * (2 * width)
        self.last_pages: object = None  # of the node; each change makes another tuple
        self.locked = [0] * (2 * width)  # expected holders of locks in each slot
        self.tags: Tags = NO_TAGS
        self.digests: tuple[bytes, ...] | None = None
        self.kids = 0
        self.kids_on = [0, 0]  # children with the backbone on each tier
        self.use = 0  # the clock at its last use
        self.hits = -1  # requests that used it; -1: not known yet
        self.live_distance = NONE  # see distances
        self.there = -1  # components other than the backbone that it has, as bits; -1: not asked
        self.candidate = 0  # the parts of eviction queues that it belongs in, as bits
        self.moved = True  # whether its key, parent or pages are new since this operation


def candidacy(record: NodeRecord, kinds: Sequence[Kind]) -> int:
    """Returns the parts of eviction queues that the node belongs in, by definition, as bits: first
    what serves a live boundary, then the unreachable.

    The backbone can be evicted from leaves only; another component from any node without locks on
    it.
    """
    if record.parent is None:
        return 0
    pages, locked, width = record.pages, record.locked, len(kinds)
    bits, near = 0, record.live_distance
    unreachable = near >= kinds[0].need
    if pages[0] is not None and not record.kids_on[0] and not locked[0]:
        bits = 1 << 2 * DEVICE + unreachable
    if pages[width] is not None and not record.kids_on[1] and not locked[width]:
        twice = pages[0] is not None and (
            width == 1
            or all(pages[at] is not None or pages[width + at] is None for at in range(1, width))
        )
        bits |= 1 << 2 * (ALSO_ON_DEVICE if twice else HOST) + unreachable
    for index in range(1, width):
        first = 6 * index + (near >= kinds[index].need)
        on_device = pages[index] is not None
        if on_device and not locked[index]:
            bits |= 1 << first + 2 * DEVICE
        if pages[width + index] is not None and not locked[width + index]:
            bits |= 1 << first + 2 * (ALSO_ON_DEVICE if on_device else HOST)
    return bits
