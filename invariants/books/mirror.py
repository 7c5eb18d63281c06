"""Mirrors of nodes: the books' record of one node.

Lives here: the record, the definition of eviction candidates, validity on device, and the search
for the node from which a new one was split. Does not contain sums over nodes (see nodes) or checks.
Does not read the core's own sums (`with_pages`, `queued`, counts), because checks compare them with
these.

Each (tier, component) has one *slot*: tier * components + component, device first. Lists of a
mirror are indexed by slot, lists of uses by component, bits of `candidate` by 3 * component +
queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hicache.core.radix.node import NONE, Node
from hicache.core.types import Pages

from .kinds import Kind
from .tags import NO_TAGS, Tags

DEVICE, HOST, DUPLICATE = 0, 1, 2  # eviction queues of a component; the first two are also tiers
Key = tuple[int, ...]  # the key that an eviction order compares (see orders)
Rank = tuple[bool, Key]  # eviction order of a copy: garbage first, then by key


class Standing:
    """Where a node's device copy of full attention stands under a policy with second chances (see
    kept/chances). there: whether it is on device. place: the lowest is at the front of its queue.
    """

    __slots__ = ("chances", "main", "place", "there")

    def __init__(self) -> None:
        self.there = self.main = False
        self.place = self.chances = 0

    def copy(self) -> Standing:
        made = Standing()
        made.there, made.main = self.there, self.main
        made.place, made.chances = self.place, self.chances
        return made


NOWHERE = Standing()  # of all nodes, under other policies


class NodeMirror:
    """The books' record of one node."""

    __slots__ = (
        "age",
        "candidate",
        "changed",
        "cost",
        "digests",
        "earlier",
        "end_page",
        "fetched",
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
        "stands",
        "tags",
        "there",
        "use",
        "visits",
    )

    def __init__(self, node_id: int, width: int) -> None:
        self.id = node_id
        self.node: Node | None = None  # the core's record
        self.parent: NodeMirror | None = None
        self.key = b""
        self.label = b""
        self.namespace = ""
        self.end_page = 0
        self.span = 0  # pages of the run
        self.pages: list[Pages | None] = [None] * (2 * width)
        self.gave: list[Pages | None] = [None, None]  # backbone pages by tier
        # that it lost in this operation
        self.locked = [0] * (2 * width)  # expected holders of locks in each slot
        self.tags: Tags = NO_TAGS
        self.digests: tuple[bytes, ...] | None = None
        self.kids = 0
        self.kids_on = [0, 0]  # children with the backbone on each tier
        self.use = [0] * width
        self.fetched = False  # made by a fetch, before any request used it
        self.inserted = 0  # clock at its insertion
        self.hits = 0  # requests that used it
        self.priority = 0  # highest priority of those requests
        self.visits = [0] * width  # requests that used it, without the one that inserted it
        self.age = [0] * width  # age of the component at the last of them, or at its insertion
        self.earlier = 0  # clock at the last insertion before its own
        self.cost = [0] * width  # of computing one page of it again, or its state
        self.stands = NOWHERE
        self.live_distance = NONE  # see distances
        self.there = -1  # components other than the backbone that it has, as bits; -1: not asked
        self.rank: list[Rank | None] = [None] * width  # None until first computed
        self.changed = False  # whether facts of its rank changed since it was computed
        self.candidate = 0  # bit 3 * c + q: it can be evicted from queue q of component c


def serves(kind: Kind, near: int) -> bool:
    """Whether a live boundary `near` pages below its node's end requires a copy."""
    return near < kind.need


def valid(mirror: NodeMirror, kinds: Sequence[Kind]) -> bool:
    """Whether everything that the boundary at the node's end requires is on device."""
    for kind in kinds:
        step = mirror
        while step.parent is not None and mirror.end_page - step.end_page < kind.need:
            if step.pages[kind.at] is None:
                return False
            step = step.parent
    return True


def candidacy(mirror: NodeMirror, width: int) -> int:
    """Returns the eviction queues that the node belongs in, by definition, as bits.

    The backbone can be evicted from leaves only; another component from any node without locks on
    it.
    """
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
    """Whether the node's pages differ from its mirror's in any slot."""
    slot = 0
    for tier in node.pages:
        for held in tier:
            if held is not mirror.pages[slot]:
                return True
            slot += 1
    return False


def lower_half(
    mirror: NodeMirror, node: Node, by_id: Mapping[int, NodeMirror], removed: Iterable[NodeMirror]
) -> NodeMirror | None:
    """Returns the node from which this new one was split, or None."""
    below = list(node.children.values())
    for child in below:
        lower = by_id.get(child.id)
        if lower is None:
            below.extend(child.children.values())
        elif lower.end_page - lower.span < mirror.end_page:  # parents first: not cut yet
            return lower
    for gone in removed:
        at = mirror.end_page - (gone.end_page - gone.span) - 1
        if not 0 <= at < gone.span or gone.tags[at] != mirror.tags[-1]:
            continue
        for held, gave in zip((tier[0] for tier in node.pages), gone.gave, strict=True):
            if held is not None and gave is not None and gave[at] == held[-1]:
                return gone  # otherwise it was evicted and inserted again
    return None
