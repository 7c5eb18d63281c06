"""A recount of a core with a third tier, from its records alone: pages, loans, locks, boundaries,
queues and waiters are what the definitions say. Raises AssertionError.

Must not live here: how an event is handled.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from hicache.core.radix.node import NONE, FlightKind, Leg, Node
from hicache.core.types import Pages, PageState, Tier
from hicache.core.view import CoreView

HOST_TARGETS = (FlightKind.BACKUP, FlightKind.FETCH)
HOST_SOURCES = (FlightKind.LOAD, FlightKind.STORE)
TIERS = (Tier.DEVICE, Tier.HOST)


def recount(view: CoreView) -> None:
    nodes = list(view.nodes())
    _judge_pages(view, nodes)
    _judge_locks(view, nodes)
    _judge_candidates(view, nodes)
    _judge_boundaries(view, nodes)
    _judge_copies(view, nodes)
    _judge_waiters(view)
    _judge_store_queue(view, nodes)


def _judge_pages(view: CoreView, nodes: list[Node]) -> None:
    """Each page has one owner, and as many loans as transfers that use it."""
    legs = [leg for flight in view.flights.values() for leg in flight.legs]
    for tier in TIERS:
        for index in range(len(view.components)):
            pool = view.pool(tier, index)
            loans = np.zeros(pool.capacity, dtype=np.int64)
            owner: dict[int, tuple[PageState, int]] = {}

            def give(
                pages: Pages,
                state: PageState,
                number: int,
                owner: dict[int, tuple[PageState, int]] = owner,
            ) -> None:
                for page in pages.tolist():
                    assert page not in owner, (page, owner[page], state, number)
                    owner[page] = (state, number)

            for node in nodes:
                held = node.pages[tier][index]
                if held is not None:
                    give(held, PageState.CACHED, node.id)
            for leg in legs:
                if leg.component != index:
                    continue
                if _fills(leg) == tier:
                    give(leg.target, PageState.LENT, leg.flight.id)
                if _reads(leg) == tier:
                    loans[leg.source] += 1
            if tier == Tier.DEVICE:
                for flight in view.flights.values():
                    for part in flight.lent[index : index + 1]:
                        loans[part] += 1
            assert pool.loans.tolist() == loans.tolist(), (pool, "loans")
            for page in range(pool.capacity):
                state, number = PageState(int(pool.state[page])), int(pool.owner[page])
                if state in (PageState.CACHED, PageState.LENT) or page in owner:
                    assert owner.get(page) == (state, number), (str(pool), page, state, number)
                assert (state is PageState.RETIRING) <= (loans[page] > 0), (str(pool), page)


def _fills(leg: Leg) -> Tier:
    return Tier.HOST if leg.flight.kind in HOST_TARGETS else Tier.DEVICE


def _reads(leg: Leg) -> Tier:
    return Tier.HOST if leg.flight.kind in HOST_SOURCES else Tier.DEVICE


def _judge_locks(view: CoreView, nodes: list[Node]) -> None:
    """The locks of the nodes are those of the receipts. A lock on a backbone is on every copy
    above; one on another component is on the node's backbone."""
    receipts = [one.receipt for one in view.requests.values() if one.receipt is not None]
    receipts += [one.receipt for one in view.flights.values() if one.receipt is not None]
    found: Counter[tuple[int, int, int, int]] = Counter()
    for receipt in receipts:
        for index, entries in enumerate(receipt.locked):
            for node, tier in entries:
                found[receipt.id, node.id, int(tier), index] += 1
    assert not found or max(found.values()) == 1
    protected: Counter[tuple[int, int]] = Counter()
    told = set()
    for node in nodes:
        for tier in TIERS:
            for index in range(len(view.components)):
                holders, pages = node.locks[tier][index], node.pages[tier][index]
                told |= {(holder, node.id, int(tier), index) for holder in holders}
                if holders:
                    assert pages is not None, (node, tier, index)
                    protected[tier, index] += len(pages)
                for holder in holders if index else ():
                    there = node.pages[tier][0] is not None
                    assert not there or holder in node.locks[tier][0], (node, tier, index)
                above = node.parent
                while not index and holders and above is not None and above.parent is not None:
                    if above.pages[tier][0] is not None:
                        assert holders.keys() <= above.locks[tier][0].keys(), (node, above, tier)
                    above = above.parent
    assert told == set(found), told ^ set(found)
    for tier in TIERS:
        for index in range(len(view.components)):
            assert view.pool(tier, index).protected == protected[tier, index], (tier, index)


def _judge_candidates(view: CoreView, nodes: list[Node]) -> None:
    """What no lock protects can be reached by eviction: it has no locked copy below it, and a
    copy that can go now has an entry in a queue."""
    for node in nodes:
        for tier in TIERS:
            below = [child for child in node.children.values() if child.pages[tier][0] is not None]
            assert node.with_pages[tier] == len(below), node
            if node.pages[tier][0] is None or node.locks[tier][0]:
                continue
            assert not any(child.locks[tier][0] for child in below), (node, tier)
            if not below and not any(node.locks[tier]):
                kinds = (0,) if tier == Tier.DEVICE else (1, 2)
                entries = [
                    member
                    for kind in kinds
                    for garbage in (False, True)
                    for _, _, member in view.queue_entries(kind, 0, garbage)
                ]
                assert node.id in entries, (node, tier)


def _judge_boundaries(view: CoreView, nodes: list[Node]) -> None:
    """The distance to the nearest live boundary, by its definition."""
    if all(one.window_pages >= 1 << 40 for one in view.components):
        assert not any(node.live_distance for node in nodes)
        return
    least: dict[int, int] = {}
    for node in nodes:
        if _is_live(view, node):
            above: Node | None = node
            while above is not None and above.parent is not None:
                distance = node.end_page - above.end_page
                least[above.id] = min(least.get(above.id, NONE), distance)
                above = above.parent
    widest = max(one.window_pages for one in view.components if one.window_pages < 1 << 40)
    for node in nodes:
        expected = least.get(node.id, NONE)
        if expected < widest:
            assert node.live_distance == expected, (node, node.live_distance, expected)
        else:
            assert node.live_distance >= widest, (node, node.live_distance, expected)
            assert (node.live_distance == NONE) == (expected == NONE), node


def _is_live(view: CoreView, node: Node) -> bool:
    for index, component in enumerate(view.components):
        above: Node | None = node
        while above is not None and above.parent is not None:
            if node.end_page - above.end_page >= component.window_pages:
                break
            if all(side[index] is None for side in above.pages):
                return False
            above = above.parent
    return True


def _judge_copies(view: CoreView, nodes: list[Node]) -> None:
    """Every node has its backbone somewhere, and a policy that asks for it contiguous copies."""
    for node in nodes:
        assert any(side[0] is not None for side in node.pages), node
        if not view.writes.contiguous:
            continue
        parent = node.parent
        assert parent is not None
        if node.pages[Tier.HOST][0] is not None and parent.parent is not None:
            assert parent.pages[Tier.HOST][0] is not None, (node, parent)
        others = [pages for pages in node.pages[Tier.HOST][1:] if pages is not None]
        assert not others or node.pages[Tier.HOST][0] is not None, node


def _judge_waiters(view: CoreView) -> None:
    arrived = {one.id: one.arrived for one in view.requests.values()}
    waiting = {one.id: one.prefetch for one in view.requests.values() if one.prefetch}
    found = {}
    for flight in view.storage_flights.values():
        assert view.flights[flight.id] is flight
        found.update(dict.fromkeys(flight.waiters, flight.id))
        assert flight.waiters == sorted(flight.waiters, key=arrived.__getitem__)
        if flight.kind in (FlightKind.LOOKUP, FlightKind.FETCH):
            assert flight.abandoned == (not flight.waiters)
            assert flight.waiters[:1] == [flight.request] or flight.request == -1
    assert found == waiting
    assert not any(view.requests[one].admitted for one in waiting)
    kinds = {FlightKind.LOOKUP, FlightKind.FETCH, FlightKind.STORE, FlightKind.DELETE}
    assert [*view.storage_flights] == [one.id for one in view.flights.values() if one.kind in kinds]
    config = view.config
    most = config.prefetch_budget_tokens or config.host_pages[0] * config.page_size
    assert view.prefetching_tokens <= most


def _judge_store_queue(view: CoreView, nodes: list[Node]) -> None:
    known = {node.id for node in nodes}
    queue = view.store_queue
    assert len(set(queue)) == len(queue)
    assert set(queue) <= known
    assert set(queue) == {node.id for node in nodes if node.store_place}
    stores = [one for one in view.storage_flights.values() if one.kind is FlightKind.STORE]
    assert len(stores) <= view.config.max_stores
    if not view.attached:
        assert not queue
        assert not view.distrusted
        assert all(one.abandoned for one in view.storage_flights.values())
    if queue and view.attached:
        deletes = any(one.kind is FlightKind.DELETE for one in view.storage_flights.values())
        assert deletes or len(stores) == view.config.max_stores, "nothing lets the queue go on"
