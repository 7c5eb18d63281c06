"""The drain: everything is let go at the end of a sequence, and nothing may be left.

    unpin all -> every period passes -> evict everything -> as a new core -> detach the storage

A reservation, a lock, a count or a place in a queue that outlives what it was for may stay unseen
as long as requests run.
"""

from __future__ import annotations

from dataclasses import fields

from hicache.core.core import Core
from hicache.core.errors import About
from hicache.core.events import DetachWanted, EvictWanted, TimePassed, UnpinWanted
from hicache.core.state import State
from hicache.core.types import Tier
from invariants.fuzz.hicache.hand import Hand
from sim.errors import StuckError

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


def drain(hand: Hand) -> None:
    """Lets everything go. Raises StuckError if anything is left."""
    view = hand.core.view
    for pin in tuple(view.pins):
        hand.feed(UnpinWanted(pin))
    periods = hand.config.ttl_periods
    for _ in range(periods + 1 if periods else 0):
        hand.feed(TimePassed())
        hand.settle()
    kept = [About("node", node.id) for node in view.nodes()] if periods else []
    if kept:
        text = f"{periods + 1} periods passed without a use, and nodes did not expire"
        raise StuckError(text, "", *kept)
    for tier in (Tier.DEVICE, Tier.HOST):
        _evict(hand, tier)
    if left := _left(hand.core):
        raise StuckError(f"everything was let go, and there is still: {'; '.join(left)}")
    if view.attached:
        hand.feed(DetachWanted())
    if view.attached or view.flights:
        raise StuckError("the storage was detached, and is still attached or has actions in flight")


def _evict(hand: Hand, tier: Tier) -> None:
    pools, idle = hand.core.view.pools(tier), 0
    while idle < IDLE_ROUNDS and any(pool.evictable for pool in pools):
        free = [pool.free for pool in pools]
        for pool in pools:
            hand.feed(EvictWanted(tier, pool.component, pool.capacity))
            hand.settle()
        # a long path that is written back goes node by node, from its end
        idle = 0 if [pool.free for pool in pools] != free else idle + 1


def _left(core: Core) -> list[str]:
    """What a core has that a new one of its configuration has not."""
    left = []
    new = Core(core.view.config).view
    for field in fields(State):
        seen, expected = (getattr(view._state, field.name) for view in (core.view, new))
        plain = type(expected) in (int, bool, list, dict)
        if plain and field.name not in OF_THE_PAST and seen != expected:
            left.append(f"{field.name} {seen!r}, expected {expected!r}")
    return left + [
        f"{pool}, {pool.protected} protected, {int(pool.loans.sum())} loans"
        for pool in (*core.view.pools(Tier.DEVICE), *core.view.pools(Tier.HOST))
        if pool.protected or pool.loans.any() or pool.free != pool.capacity
    ]
