"""The small queue, the main queue and the ghost of a policy with second chances (S3-FIFO).

Lives here: where each device copy of full attention stands, worked out from the events and their
outcomes, in a cache with full attention alone. No outcome tells which copies were spared, so the
choice of each victim is repeated: copies before it that have chances go to the end of main. Does
not contain checks, and does not read the marks of the core.

    hear     before the nodes are filed: the victims are chosen again
    settle   after they are filed: what came to the device
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from hicache.core.actions import Backup, Evicted, Outcome, Refused
from hicache.core.events import Event, Flushed
from hicache.core.eviction_policies.base import EvictionPolicy, SecondChance, second_chance_of
from hicache.core.types import NO_PAGES, Pages, Tier

from ..mirror import NodeMirror, Standing
from ..pages import NODE, PageBook

INSERTED = -1


class Nodes(Protocol):
    """What is needed of the record of all nodes (see nodes)."""

    by_id: dict[int, NodeMirror]
    at: dict[int, NodeMirror]


class Room(NamedTuple):
    """free: pages that were free before. leaving: pages whose eviction waits for a copy that began
    before. wanted: free pages that the operation tried to have; 0 if it tried nothing. reused: tags
    of the pages on device that its request reuses.
    """

    free: int
    leaving: int
    wanted: int = 0
    reused: Sequence[int] = ()


class Passed(NamedTuple):
    """A victim that was not the next one. expected: the node that was, or None if there was none.
    victim, before: how each of them stood then.
    """

    victim: Standing
    expected: NodeMirror | None
    before: Standing | None


class Chances:
    """small: cached pages of the small queue. ghost: digests of the pages that earlier operations
    evicted out of it, the oldest first. passed: by its first page, a victim of this operation that
    was not the next one.
    """

    def __init__(self, policy: SecondChance, device: PageBook) -> None:
        self.policy = policy
        self.device = device
        self.small_least = -(-device.capacity * policy.small_percent // 100)
        self.ghost_most = device.capacity * policy.ghost_percent // 100
        self.small = 0
        self.ghost: dict[bytes, None] = {}
        self.passed: dict[int, Passed] = {}
        self.turn = 0
        self._buried: list[bytes] = []  # digests that this operation evicted out of small
        self._gone: dict[int, int] = {}  # by node, pages that left it in this operation
        self._kids_gone: dict[int, int] = {}  # by node, children that left the device in it
        self._held: set[int] = set()  # nodes that are locked since this operation began
        # by node, the depth down to which a request reuses a part of it, and how that part stands
        self._reused: dict[int, tuple[int, Standing]] = {}
        # by node that this operation made: the node from which it was split, or INSERTED
        self._split_from: dict[int, int] = {}

    @property
    def ghost_next(self) -> int:
        """Pages in the ghost once another event begins."""
        return min(self.ghost_most, len(self.ghost | dict.fromkeys(self._buried)))

    def hear(self, event: Event, outcomes: Sequence[Outcome], nodes: Nodes, room: Room) -> None:
        """Before the nodes of an operation are filed."""
        self._remember()
        self.turn += 1
        self.passed, self._gone, self._kids_gone = {}, {}, {}
        self._held, self._reused, self._split_from = set(), {}, {}
        if type(event) is Flushed and not any(type(item) is Refused for item in outcomes):
            self.small, self.ghost = 0, {}
        if room.wanted:
            self._lock(nodes, room.reused)
        free, leaving = room.free, room.leaving
        for item in outcomes:
            pages = _victim(item)
            code = int(self.device.owner[pages[0]]) if len(pages) else 0
            mirror = nodes.by_id.get(code >> 2) if code & 3 == NODE else None
            if mirror is None or (type(item) is Backup and not room.wanted):
                continue
            if room.wanted:
                self._compare(nodes, mirror, int(pages[0]))
            if type(item) is Backup:
                leaving += len(pages)
                self._hold(mirror)
            else:
                free += int((self.device.busy[pages] == 0).sum())
                self._leave(mirror, pages)
        if free + leaving < room.wanted:
            self._next(nodes)  # the next victim had to wait for a copy of another page

    def settle(self, mirrors: Iterable[NodeMirror]) -> None:
        """After the nodes of an operation were filed. mirrors: those that may have another place
        or other pages.

        A pin may split a node in the operation in which its copy came. The parts are one copy here:
        the first page of the uppermost says whether the ghost knows it. With full attention
        alone, an operation inserts at most one node on device.
        """
        known: dict[int, bool] = {}  # by the node whose copy came
        for mirror in sorted(mirrors, key=_depth):
            stands, pages = mirror.stands, mirror.pages[0]
            if pages is not None and not stands.there:
                digests = mirror.digests or ()
                whole = self._split_from.get(mirror.id, mirror.id)
                stands.main = known.setdefault(whole, bool(digests) and digests[0] in self.ghost)
                stands.chances, stands.place = 0, self.turn
                if not stands.main:
                    self.small += len(pages)
                for digest in digests if stands.main else ():
                    self.ghost.pop(digest, None)
            stands.there = pages is not None

    def visited(self, mirror: NodeMirror) -> None:
        """A request uses a node that another one inserted."""
        mirror.stands.chances = min(self.policy.most_chances, mirror.stands.chances + 1)

    def inherit(self, mirror: NodeMirror, lower: NodeMirror | None) -> None:
        """A node is new in the tree, or the upper half of another."""
        self._split_from[mirror.id] = INSERTED if lower is None else lower.id
        if lower is None:
            mirror.stands = Standing()
            mirror.stands.place = self.turn
            return
        depth, stands = self._reused.get(lower.id, (0, lower.stands))
        mirror.stands = (stands if mirror.end_page <= depth else lower.stands).copy()

    def _remember(self) -> None:
        """The ghost knows what the last operation evicted."""
        for digest in sorted(self._buried):
            self.ghost.pop(digest, None)
            self.ghost[digest] = None
            if len(self.ghost) > self.ghost_most:
                del self.ghost[next(iter(self.ghost))]
        self._buried = []

    def _lock(self, nodes: Nodes, reused: Sequence[int]) -> None:
        """A request locks the prefix that it reuses. A node that reaches further is split there."""
        self._held.update(nodes.at[tag].id for tag in reused if tag in nodes.at)
        if not reused or reused[-1] in nodes.at:
            return
        pages = len(reused)
        for mirror in nodes.by_id.values():
            first = mirror.end_page - mirror.span
            if first < pages < mirror.end_page and mirror.tags[pages - first - 1] == reused[-1]:
                self._reused[mirror.id] = pages, mirror.stands.copy()

    def _hold(self, mirror: NodeMirror) -> None:
        """A copy to host locks its path."""
        step: NodeMirror | None = mirror
        while step is not None:
            self._held.add(step.id)
            step = step.parent

    def _leave(self, mirror: NodeMirror, pages: Pages) -> None:
        """Pages of a node are evicted from the device."""
        held, parent = mirror.pages[0], mirror.parent
        if not mirror.stands.main:
            self.small -= len(pages)
            if held is not None and mirror.digests is not None:
                first = int((held == pages[0]).argmax())
                self._buried += mirror.digests[first : first + len(pages)]
        self._gone[mirror.id] = gone = self._gone.get(mirror.id, 0) + len(pages)
        if gone == mirror.span and parent is not None:
            self._kids_gone[parent.id] = self._kids_gone.get(parent.id, 0) + 1

    def _compare(self, nodes: Nodes, mirror: NodeMirror, page: int) -> None:
        chosen = self._next(nodes)
        if chosen is not mirror:
            before = None if chosen is None else chosen.stands.copy()
            self.passed[page] = Passed(mirror.stands.copy(), chosen, before)

    def _next(self, nodes: Nodes) -> NodeMirror | None:
        """The next victim. What comes before it goes to the end of main."""
        left = [mirror for mirror in nodes.by_id.values() if self._can_go(mirror)]
        while left:
            main = self.small < self.small_least
            queue = [mirror for mirror in left if mirror.stands.main == main] or left
            mirror = min(queue, key=self._place)
            stands = mirror.stands
            if stands.chances < (1 if stands.main else self.policy.visits_to_main):
                return mirror
            if not stands.main:
                self.small -= self._pages(mirror)
            stands.chances = stands.chances - 1 if stands.main else 0
            self.turn += 1
            stands.main, stands.place = True, self.turn
        return None

    def _place(self, mirror: NodeMirror) -> tuple[int, int, int]:
        return mirror.stands.place, self._gone.get(mirror.id, 0) - mirror.end_page, mirror.id

    def _pages(self, mirror: NodeMirror) -> int:
        """Pages that can go: those that are still there and not reused."""
        reused = self._reused.get(mirror.id)
        above = 0 if reused is None else reused[0] - mirror.end_page + mirror.span
        return mirror.span - above - self._gone.get(mirror.id, 0)

    def _can_go(self, mirror: NodeMirror) -> bool:
        """Whether the node is a leaf of the device that nobody locks."""
        return (
            mirror.pages[0] is not None
            and mirror.parent is not None
            and not mirror.locked[0]
            and mirror.kids_on[0] == self._kids_gone.get(mirror.id, 0)
            and mirror.id not in self._held
            and self._pages(mirror) > 0
        )


def chances_of(policy: EvictionPolicy, device: Sequence[PageBook]) -> Chances | None:
    """The record for this policy, in a cache with these pools on device; None if it keeps none."""
    found = second_chance_of(policy)
    return Chances(found, device[0]) if found is not None and len(device) == 1 else None


def _depth(mirror: NodeMirror) -> int:
    return mirror.end_page


def _victim(item: Outcome) -> Pages:
    """The device pages that an eviction frees, or copies to host first."""
    if type(item) is Evicted and item.tier == Tier.DEVICE:
        return item.pages
    return item.copies[0].source if type(item) is Backup else NO_PAGES
