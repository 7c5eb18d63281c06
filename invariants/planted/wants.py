"""Bugs in what users want: pinned prefixes, and copies that expire."""

from __future__ import annotations

from heapq import heappop
from typing import Any

from hicache.core.actions import Unpinned
from hicache.core.eviction import delete, delete_dead
from hicache.core.wants import expiry, pinning

from .base import bug

_due = expiry._due
_want_unpin = pinning.want_unpin


@bug(pinning, "want_unpin", kills="lock-bal", wanted=True)
def unpinned_prefix_stays_locked(state: Any, event: Any) -> None:
    """A pin that is given up keeps its locks."""
    if event.pin not in state.pins:
        _want_unpin(state, event)
    pin = state.pins.pop(event.pin)
    state.out.append(Unpinned(pin.id, pin.held_pages))


@bug(pinning, "hold_pinned", kills="spec", wanted=True)
def pins_hold_only_what_was_there(state: Any, tier: Any) -> None:
    """A pin does not take hold of what comes after it."""


@bug(pinning, "let_go_flushed", kills="spec", wanted=True)
def flushed_pins_hold_on(state: Any) -> None:
    """After a flush, pins believe that they still hold their pages."""
    for pin in state.pins.values():
        for entries in pin.receipt.locked:
            entries.clear()


@bug(pinning, "pinned_beside", kills="spec", wanted=True)
def requests_may_count_on_pinned_pages(state: Any, request: Any) -> int:
    """A request that only fits without the pins is told to wait."""
    return 0


@bug(pinning, "_needed", kills="spec", wanted=True)
def pins_are_bounded_by_what_they_hold(state: Any, pages: int, index: int) -> int:
    """The bound of pins counts no page of a prefix but the first."""
    return 1


@bug(expiry, "time_passed", kills="spec", wanted=True)
def locked_nodes_never_expire(state: Any, event: Any) -> None:
    """A node that was in use when it was due is never looked at again."""
    state.period_ticks.append(state.tick)
    if len(state.period_ticks) <= state.config.ttl_periods:
        return
    due = _due(state, state.period_ticks.pop(0))
    for node in sorted(due, key=lambda node: -node.end_page):
        if not (node.children or node.legs or any(map(any, node.locks))):
            delete(state, node)
    delete_dead(state)


@bug(expiry, "_due", kills="spec", wanted=True)
def copies_expire_while_they_are_used(state: Any, tick: int) -> list[Any]:
    """A node expires by the time at which it was filed, whatever used it since."""
    found = []
    while state.unused and state.unused[0][0] <= tick:
        node = heappop(state.unused)[2]
        if node.parent is not None:
            found.append(node)
    return found
