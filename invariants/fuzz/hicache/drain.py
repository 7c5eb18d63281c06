"""The drain: everything is let go at the end of a sequence, and nothing may be left.

    unpin all -> every period passes -> evict everything -> as a new core -> detach the storage

A reservation that is never given back, a lock, a count, a belief or a place in a queue that
outlives what it was for may stay unseen as long as requests run. Here it is a failure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields

from hicache.core.core import Core
from hicache.core.errors import About
from hicache.core.events import DetachWanted, EvictWanted, TimePassed, UnpinWanted
from hicache.core.ledger import Pool
from hicache.core.state import State
from hicache.core.types import PageState, Tier
from invariants.against import Against
from invariants.fuzz.hicache.hand import Hand

TIERS = (Tier.DEVICE, Tier.HOST)
IDLE_ROUNDS = 8  # rounds of evictions in a row that free nothing
# What a core keeps for good or drops later: counters, what its policies remember of the past, what
# storage did not deliver, stale entries of heaps, and the records of the last event.
OF_THE_PAST = frozenset(
    (
        *("tick", "next_node", "next_flight", "next_receipt", "next_place", "arrivals", "turn"),
        *("stride", "attached", "beliefs_since", "distrusted", "unused", "queues", "period_ticks"),
        *("chances", "newest", "newest_before", "age", "next_age"),
        *("touched", "touched_requests", "out", "pools", "root"),
    )
)
SPECIFIED = ("requests", "running", "flights", "storage", "to_store", "believed", "pins")


class Stuck(AssertionError):
    """Something that the core accepted does not end, although there are no more faults."""

    def __init__(self, text: str, *about: About) -> None:
        super().__init__(text)
        self.about = about


def drain(hand: Hand) -> None:
    """Lets everything go. Raises Stuck if anything is left."""
    for pin in tuple(hand.core.view.pins):
        hand.feed(UnpinWanted(pin))
    _pass_time(hand)
    _evict(hand)
    left = [*_left(hand.core), *(f"specified {one}" for one in _specified(hand))]
    if left:
        raise Stuck(f"everything was let go, and there is still: {'; '.join(left)}")
    if hand.core.view.attached:
        hand.feed(DetachWanted())
    if hand.core.view.attached or hand.core.view.flights:
        raise Stuck("the storage was detached at rest, and it is still used")


def _pass_time(hand: Hand) -> None:
    """What is not used expires, so nothing is cached after as many periods."""
    periods = hand.config.ttl_periods
    for _ in range(periods + 1 if periods else 0):
        hand.feed(TimePassed())
        hand.settle()
    kept = [node.id for node in hand.core.view.nodes()] if periods else []
    if kept:
        raise Stuck(
            f"{periods + 1} periods passed without a use, and nodes did not expire: {kept}",
            *(About("node", node) for node in kept),
        )


def _evict(hand: Hand) -> None:
    names = hand.config.components
    for tier in TIERS:
        pools = [hand.core.view.pool(tier, at) for at in range(len(names))]
        idle = 0
        while idle < IDLE_ROUNDS and any(pool.evictable for pool in pools):
            free = [pool.free for pool in pools]
            for at, name in enumerate(names):
                hand.feed(EvictWanted(tier, name, pools[at].capacity))
                hand.settle()
            # a long path that is written back goes node by node, from its end
            idle = 0 if [pool.free for pool in pools] != free else idle + 1
        left = {pool.component: pool.capacity - pool.free for pool in pools}
        if any(left.values()):
            raise Stuck(
                f"{tier.name.lower()}: everything was evicted, and pages are missing: {left}",
                *_not_free(pools),
            )


def _not_free(pools: Sequence[Pool]) -> Iterator[About]:
    for pool in pools:
        for page in (pool.state != PageState.FREE).nonzero()[0].tolist():
            yield About("page", page, int(pool.tier), pool.component)


def _left(core: Core) -> Iterator[str]:
    """Names what a core has that a new one of its configuration has not."""
    new = Core(core.view.config).view
    for one in fields(State):
        if one.name in OF_THE_PAST:
            continue
        found, expected = (getattr(view._state, one.name) for view in (core.view, new))
        if type(expected) in (int, bool, list, dict) and found != expected:
            yield f"{one.name} {found!r}, expected {expected!r}"
    root = core.view.root
    if root.children or root.legs or any(map(any, root.locks)):
        yield "something on the root of the tree"
    for pool in (pool for tier in TIERS for pool in core.view.pools(tier)):
        if pool.protected or pool.loans.any() or pool.free != pool.capacity:
            yield f"{pool}, {pool.protected} protected, {int(pool.loans.sum())} loans"
    for at in range(len(core.view.components)):
        if core.view.small_pages(at):
            yield f"{core.view.small_pages(at)} pages in the small queue of component {at}"


def _specified(hand: Hand) -> Iterator[str]:
    """The same of the specification, if the core is compared with it."""
    for one in hand.observers:
        if isinstance(one, Against) and one.lockstep is not None:
            cache = one.lockstep.specification.cache
            for name in SPECIFIED:
                if getattr(cache, name):
                    yield f"{name} {getattr(cache, name)!r}"
            if cache.nodes():
                yield f"{len(cache.nodes())} nodes"
