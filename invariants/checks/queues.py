"""The eviction queues, the logical clock and the last use of nodes."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from hicache.core.actions import Admitted, Backup, Cached, Evicted, Fetch, Granted, Refused
from hicache.core.events import EvictWanted, FetchDone, TimePassed
from hicache.core.lru import Entry
from hicache.core.node import Node
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.differential import order_of
from invariants.shadow import story
from invariants.shadow.record import DEVICE, HOST, NodeRecord
from invariants.shadow.shadow import Shadow
from invariants.spec.kinds import Facts, Order

_OTHERWISE = (FetchDone, TimePassed)  # what free: states beyond the limit of a path, the expired
_NAMES = ("candidate on device", "candidate on host", "host copy also on device")


class LeafSet(Check):
    name = "LEAF-SET"
    sentence = (
        "The queues of a component hold exactly its unlocked copies, of full attention those of "
        "nodes without a child on the tier: host-only ones apart, and unreachable ones in the part "
        "that is evicted first. Each node knows its children on each tier."
    )

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if node.with_pages[0] != record.kids_on[0] or node.with_pages[1] != record.kids_on[1]:
            self.fail(
                f"node {node.id}: expected {record.kids_on} children on (device, host), found "
                f"{[*node.with_pages]}",
                story.node(node.id),
            )
        if missing := record.candidate & ~node.queued:
            part = (missing & -missing).bit_length() - 1
            self.fail(
                f"node {node.id} is a {_NAMES[part // 2 % 3]} of {shadow.kinds[part // 6].name}, "
                f"{'unreachable' if part % 2 else 'which serves'}: expected an entry in part "
                f"{part}, found {node.queued:b} as bits",
                story.node(node.id),
            )


class Lru(Check):
    name = "LRU"
    sentence = (
        "The last use of a node is the tick of the last admission or insertion on its path, and no "
        "component of it was used later; a queue is a heap, and holds exactly the nodes that know "
        "of it, each once and not behind its rank, which only grows and orders what the policy "
        "compares. No unlocked leaf stays that was not used for the configured number of periods."
    )

    items = (Admitted, Cached)

    def __init__(self) -> None:
        self._ticks: list[int] = []  # at the end of each period

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        periods = shadow.config.ttl_periods
        if type(shadow.event) is not TimePassed or not periods or not shadow.history:
            return
        self._ticks = [*self._ticks[-periods:], shadow.nodes.clock]
        for record in shadow.nodes.by_id.values() if len(self._ticks) > periods else ():
            used = record.use > self._ticks[0] or record.kids or any(record.locked)
            if record.parent is not None and not used:
                self.fail(f"node {record.id} has expired and stays", story.node(record.id))

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        if node.parent is None:
            return
        if record.hits not in (-1, node.hits):
            self.fail(
                f"node {node.id}: {node.hits} hits, expected {record.hits}", story.node(node.id)
            )
        record.hits = node.hits
        if node.last_use[0] != record.use or (shadow.width > 1 and max(node.last_use) > record.use):
            self.fail(
                f"node {node.id}: expected last use {record.use}, and none of another component "
                f"after it, found {node.last_use}",
                story.node(node.id),
            )

    def after(self, shadow: Shadow, item: Admitted | Cached, view: CoreView) -> None:
        req = shadow.requests.by_id.get(item.request)
        tags = req.tags[: req.boundary].tolist() if req is not None else []
        for kind in shadow.kinds[1:] if tags else ():
            for record in shadow.nodes.required(kind.at, tags[-1]):
                if record.node is not None and record.node.last_use[kind.at] != record.use:
                    self.fail(f"node {record.id}: its {kind.name} was used", story.node(record.id))

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        if view.tick != shadow.nodes.clock:
            self.fail(f"ticks: expected {shadow.nodes.clock}, found {view.tick}")
        order = order_of(view.config.eviction_policy)
        for part in range(6 * shadow.width):
            self._queue(shadow, view, part, order)

    def _queue(self, shadow: Shadow, view: CoreView, part: int, order: Order | None) -> None:
        at, entries = part // 6, view.queue_entries(part)
        ranks = [view.eviction.rank(entry[3], at) for entry in entries]
        keys: list[Any] = ranks
        if order is not None:
            keys = [order.key(_facts(entry[3], at)) for entry in entries]
        name = f"{shadow.kinds[at].name} queue {part % 6 // 2}"
        wrong = {
            record.id
            for record in shadow.nodes.by_id.values()
            if record.node is not None and record.node.queued >> part & 1
        }
        for place, entry in enumerate(entries):
            (rank, _, node_id, _), now, up = entry, ranks[place], max(0, (place - 1) // 2)
            if entries[up] > entry:
                self.fail(
                    f"{name} is no heap: of {len(entries)} entries, number {place} is "
                    f"{entry[:3]}, expected it behind {entries[up][:3]}",
                    story.node(node_id),
                )
            if (ranks[up] < now) != (keys[up] < keys[place]):
                self.fail(
                    f"{name}: expected ranks {ranks[up]} and {now} in the order of {keys[up]} and "
                    f"{keys[place]}, which {view.eviction.name} compares",
                    story.node(node_id),
                )
            if node_id not in shadow.nodes.by_id:
                continue
            if node_id not in wrong:
                self.fail(f"{name}: node {node_id} does not know it, or is twice in it")
            wrong.remove(node_id)
            if rank > now:
                self.fail(
                    f"{name}: expected node {node_id} at rank {now} or before, found {rank}; "
                    f"either the queue is wrong, or a rank of {view.eviction.name} fell",
                    story.node(node_id),
                )
        if wrong:
            self.fail(f"{name} lacks node {min(wrong)}, which takes itself for one of it")


def _facts(node: Node, at: int) -> Facts:
    depth = node.parent.end_page if at and node.parent is not None else 0
    return Facts(node.last_use[at], node.inserted, node.hits, node.priority, depth)


class Coldest(Check):
    name = "COLDEST"
    sentence = (
        "An eviction takes unreachable copies first, then those on host alone before those that "
        "are on device too, and of these the coldest; none passes over another or what only a "
        "copy to host holds. With full attention alone it takes no more pages than are short."
    )

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if shadow.width == 1 and shadow.history:
            self._short(shadow, view)
        if not shadow.history or not shadow.nodes.lost or type(shadow.event) in _OTHERWISE:
            return
        victims: dict[int, tuple[NodeRecord, int, list[int]]] = {}
        for item in shadow.outcomes:
            if type(item) is not Evicted:
                continue
            slot = item.tier * shadow.width + shadow.index_of(item.component)
            lost = shadow.nodes.lost.get((slot, item.pages.item(-1)))
            if lost is not None:
                victims.setdefault(lost[0].id, (*lost, []))[2].append(slot)
            elif shadow.width > 1 and not victims:
                return  # of several components, one victim changes what is unreachable
        most = len(victims) if shadow.width == 1 else 1
        for record, candidate, slots in [*victims.values()][:most]:
            if min(slots) >= shadow.width and record.parent and record.parent.id in victims:
                continue  # on host alone, it may go with what is above it
            passed = [self._passed(shadow, view, record, candidate, slot) for slot in slots]
            if (colder := passed[0]) is not None and None not in passed:
                self.fail(
                    f"node {record.id} was evicted: expected node {colder.id} before it, of last "
                    f"use {colder.last_use}",
                    story.node(record.id),
                    story.node(colder.id),
                )

    def _short(self, shadow: Shadow, view: CoreView) -> None:
        """Of what leaves, or comes free when it is written back, all is taken or was lacking."""
        by_kind = {type(item): item for item in shadow.outcomes}
        if Evicted not in by_kind and Backup not in by_kind:
            return
        event, fresh, over = shadow.event, 0, shadow.device.pool.free
        for number, transfer in shadow.transfers.open.items():
            if type(transfer.action) is Backup and view.transfers[number].evicts:
                pages = sum(len(move.source) for move in transfer.moves)
                over, fresh = over + pages, fresh + pages * (transfer in shadow.transfers.fresh)
        evicted = [item for item in shadow.outcomes if type(item) is Evicted]
        counts = [sum(len(item.pages) for item in evicted if item.tier == at) for at in (0, 1)]
        counts[0] += fresh
        tier = event.tier if type(event) is EvictWanted else int(not counts[DEVICE])
        if type(event) is EvictWanted:
            over = counts[tier] - event.pages
        elif tier == HOST:
            moves = Backup in by_kind or Fetch in by_kind
            over = (shadow.host.pool.free - sum(shadow.config.exchange_pages)) * moves
        elif by_kind.keys().isdisjoint((Admitted, Granted, Refused)):
            return
        else:
            over -= getattr(by_kind.get(Refused), "needed", 0)
        if counts[tier] and over > 0:
            where = "host" if tier else "device, or are written back"
            self.fail(f"{counts[tier]} pages left {where}, {over} more than were short")

    def _passed(
        self, shadow: Shadow, view: CoreView, record: NodeRecord, candidate: int, slot: int
    ) -> Node | None:
        """What was to be evicted before this victim and stayed as it was; None if there is nothing,
        or the victim was used by this event or could not be evicted before it."""
        tier, at = divmod(slot, shadow.width)
        victim, bits = record.node, candidate >> 6 * at
        parts = (1, 0) if tier == DEVICE else (3, 5, 2, 4)  # in the order in which they are emptied
        own = next((part for part in parts if bits >> part & 1), -1)
        if victim is None or own < 0 or victim.last_use[0] == shadow.nodes.clock:
            return None
        rank = view.eviction.rank(victim, at)
        for part in parts[: parts.index(own) + 1]:
            entries = view.queue_entries(6 * at + part)
            for node in _nodes(entries, rank if part == own else None):
                known = shadow.nodes.by_id.get(node.id)
                if known is None or node.id in view.touched:
                    continue
                cold = part != own or view.eviction.rank(node, at) < rank
                if cold and known.candidate >> 6 * at + part & 1:
                    return node
        waiting = _in_backups(shadow, view) if slot == own == 0 else ()
        return next((node for node in waiting if view.eviction.rank(node, 0) < rank), None)


def _in_backups(shadow: Shadow, view: CoreView) -> Iterator[Node]:
    """What can be evicted on device when the backups that were in flight before this event have
    ended: what they alone lock, and what is above a node that leaves the device then."""
    locked: Counter[NodeRecord] = Counter()
    for number, transfer in shadow.transfers.open.items():
        if type(transfer.action) is not Backup or number > shadow.transfers.settled:
            continue
        path, backup = shadow.nodes.path(transfer.nodes[0]), view.transfers[number]
        if not backup.evicts:
            locked.update(path)
        elif backup.frees[0]:
            above = [record.node for record in path[1:] if record.node is not None]
            stay = (node for node in above if not any(x.transfer.evicts for x in node.segments))
            yield from islice(stay, 1)
    for record, count in locked.items():
        alone = record.locked[0] == count and not any(record.locked[1 : shadow.width])
        if alone and record.node is not None and record.id not in view.touched:
            yield record.node


def _nodes(entries: Sequence[Entry], below: int | None) -> Iterator[Node]:
    """The nodes of a heap, or those of a rank below this one."""
    places = [0]
    for at in places:
        if at < len(entries) and (below is None or entries[at][0] < below):
            yield entries[at][3]
            places += (2 * at + 1, 2 * at + 2)


CHECKS = (LeafSet, Lru, Coldest)
