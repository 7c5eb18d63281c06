"""Bugs in `core` and its view: replies, evictions on order, flushes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from hicache.core import admission, core
from hicache.core.actions import NO_REQUEST, KvRemoved, Refused
from hicache.core.core import Core
from hicache.core.events import Reply
from hicache.core.types import NO_PAGES, Tier
from hicache.core.view import CoreView

from .base import Patch, bug

_peers = CoreView.peers
_backup_done = core._backup_done
_evict = core._evict
_flush = core._flush
_load_done = core._load_done
_new_state = core._new_state


def _swallowing(real: Any, same: Callable[[Any, Any], bool]) -> Any:
    """Returns `Core.handle` that ignores a reply that is the `same` as the last one."""
    last: list[Any] = [None, None]

    def handle(core: Any, event: Any) -> list[Any]:
        if isinstance(event, Reply) and last[0] is core and same(last[1], event):
            return []
        outcomes = real(core, event)
        if isinstance(event, Reply):
            last[:] = core, event
        return list(outcomes)

    return handle


@bug(faults=("contradicting reply",))
def contradicting_reply_is_swallowed(patch: Patch) -> None:
    """A reply that contradicts the one before is ignored instead of refused."""

    def same(last: Any, event: Any) -> bool:
        return bool(event._replace(ok=not event.ok) == last)

    patch(Core, "handle", _swallowing(Core.handle, same))


@bug(faults=("repeated reply",))
def repeated_reply_is_swallowed(patch: Patch) -> None:
    """An identical reply that was taken before is ignored instead of refused."""

    def same(last: Any, event: Any) -> bool:
        return bool(event == last)

    patch(Core, "handle", _swallowing(Core.handle, same))


@bug(faults=("unknown reply",))
def unknown_reply_is_ignored(patch: Patch) -> None:
    """A reply to a flight that was never issued is ignored instead of refused."""

    def deaf(real: Any) -> Any:
        def handle(core: Any, event: Any) -> list[Any]:
            if isinstance(event, Reply) and event.flight >= core._state.next_flight:
                return []
            return list(real(core, event))

        return handle

    patch(Core, "handle", deaf(Core.handle))


@bug(core, "_load_done", faults=("load fails after its pass",), delays="steady")
def late_load_failure_is_ignored(state: Any, event: Any) -> None:
    """A load that fails after the pass that reads it has ended is reported to nobody."""
    flight = state.flights.get(event.flight)
    landed = flight is not None and flight.kind == "load" and not flight.legs
    _load_done(state, event._replace(ok=True) if landed else event)


@bug(
    faults=(
        "late",
        "very late",
        "burst",
        "reordered",
        "bunched",
        "engine stall",
        "overtaken load",
        "lost",
        "clog",
        "swizzled clog",
        "swizzled clog, passes first",
    )
)
def replies_below_the_last_are_ignored(patch: Patch) -> None:
    """A reply to a flight below the last one answered counts as taken already."""
    answered: dict[int, int] = {}

    def above(real: Any) -> Any:
        def handle(state: Any, event: Any) -> None:
            if event.flight in state.flights and event.flight < answered.get(id(state), 0):
                return
            real(state, event)
            answered.clear()
            answered[id(state)] = event.flight

        return handle

    for owner, name in ((core, "_load_done"), (core, "_backup_done"), (admission, "prefill_done")):
        patch(owner, name, above(getattr(owner, name)))


@bug(core, "_backup_done", kills="live-ack")
def answered_backups_stay_in_flight(state: Any, event: Any) -> None:
    """The reply to a backup does not end its flight."""
    flight = state.flights.get(event.flight)
    _backup_done(state, event)
    if flight is not None:
        flight.legs, flight.receipt = [], None
        state.flights[flight.id] = flight


@bug(core, "_backup_done", rows=("C14",), kills="spec")
def detached_storage_is_still_filled(state: Any, event: Any) -> None:
    """Copies are stored although storage was detached."""
    attached, state.attached = state.attached, True
    _backup_done(state, event)
    state.attached = attached


@bug(core, "_backup_done", rows=("G6",), kills="spec")
def evicted_copies_are_never_stored(state: Any, event: Any) -> None:
    """A copy that was written back because of an eviction is not stored."""
    flight, attached = state.flights.get(event.flight), state.attached
    state.attached = attached and not (flight is not None and flight.evicts)
    _backup_done(state, event)
    state.attached = attached


@bug(
    core,
    "_evict",
    kills="spec",
    faults=(
        "evict device during the copy",
        "evict device before the reply",
        "evict device after the reply",
    ),
)
def device_eviction_ignored_while_actions_are_open(state: Any, event: Any) -> None:
    """An order to evict from device is ignored while any action is in flight."""
    if event.tier != Tier.DEVICE or not state.flights:
        _evict(state, event)


@bug(
    core,
    "_evict",
    kills="spec",
    faults=("evict host during the copy", "evict host before the reply"),
)
def host_eviction_ignored_while_actions_are_open(state: Any, event: Any) -> None:
    """An order to evict from host is ignored while any action is in flight."""
    if event.tier != Tier.HOST or not state.flights:
        _evict(state, event)


@bug(core, "_flush", kills="spec")
def every_flush_deletes_what_is_stored(state: Any, event: Any) -> None:
    """Every flush deletes what storage has."""
    _flush(state, event._replace(storage=True))


@bug(core, "_flush", rows=("C14",), kills="pool-sum", faults=("flush during the copy",))
def flush_frees_pages_in_flight(state: Any, event: Any) -> None:
    """A flush frees the pages of copies that are in flight."""
    for flight in state.flights.values():
        for leg in flight.legs if flight.kind == "backup" else ():
            state.pools[Tier.DEVICE][leg.component].repay(leg.source)
            state.pools[Tier.HOST][leg.component].give_back(leg.target)
            leg.source = leg.target = NO_PAGES
    _flush(state, event)


@bug(core, "_flush", kills="reset", faults=("flush during the copy",))
def flush_keeps_writing_back_counts(state: Any, event: Any) -> None:
    """Pages that were being written back at a flush stay counted as writing back."""
    before = list(state.writing_back)
    _flush(state, event)
    state.writing_back[:] = before


@bug(core, "_flush", kills="reset")
def flush_leaves_stale_queue_entries(state: Any, event: Any) -> None:
    """The eviction queues keep entries of nodes that a flush has removed."""
    before = [[list(heap) for heap in queue.heaps] for queue in chain(*state.queues)]
    _flush(state, event)
    for queue, heaps in zip(chain(*state.queues), before, strict=True):
        for heap, entries in zip(queue.heaps, heaps, strict=True):
            heap[:] = entries


@bug(core, "_flush", rows=("L1",), kills="event-mirror", faults=("flush during the copy",))
def flush_publishes_no_removals(state: Any, event: Any) -> None:
    """A flush removes everything and publishes no removal event."""
    _flush(state, event)
    state.out[:] = [item for item in state.out if type(item) is not KvRemoved]


@bug(core, "_flush", kills="spec", faults=("flush during the copy",))
def flush_refused_for_waiting_requests(state: Any, event: Any) -> None:
    """A flush is refused because of waiting requests, which hold nothing."""
    if state.requests:
        count = len(state.requests)
        state.out.append(Refused(NO_REQUEST, "running", count, 0, NO_REQUEST, "full"))
        return
    _flush(state, event)


@bug(core, "_new_state", rows=("E11",), kills="spec")
def checkpoint_off_the_interval(config: Any) -> Any:
    """States are stored at every page, although only multiples of the interval are boundaries."""
    state = _new_state(config)
    state.interval = config.page_size
    return state


@bug(CoreView, "peers", kills="map-swa")
def swa_map_omits_split_nodes(view: Any, tier: Any, component: int) -> Any:
    """The map from full to window pages omits nodes whose lower half has lost its window."""
    found = _peers(view, tier, component)
    for node in view.nodes():
        full, other = node.pages[tier][0], node.pages[tier][component]
        if node.children and full is not None and other is not None:
            found[full] = 0
    return found
