"""Bugs in `stores`, their queue and `fetched`: what is written to storage, and what a fetch
brought."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import tree
from hicache.core.radix.locks import open_receipt, release
from hicache.core.radix.node import Flight
from hicache.core.state import State
from hicache.core.storage import fetched, queue, stores

from .base import Patch, bug

_forget_storage = queue.forget_storage
_acknowledge = stores._acknowledge
_begin_store = stores._begin_store
_piece = stores._piece
_wanted = stores._wanted
_grow = fetched._grow
_land = fetched._land
_fetch_done = fetched.fetch_done


@bug(kills="spec")
def replies_of_an_earlier_storage_are_believed(patch: Patch) -> None:
    """What was stored before storage was attached again is believed to be stored."""

    def tells(state: State, flight: Flight) -> bool:
        return True

    patch(stores, "tells", tells)
    patch(fetched, "tells", tells)


@bug(stores, "store_used", kills="spec")
def used_copies_are_not_stored(state: Any, path: Any) -> None:
    """Host copies from before storage was attached are not stored when they are used."""
    stores.pump(state)


@bug(stores, "_acknowledge", rows=("G11",), kills="stored")
def partly_stored_nodes_count_as_stored(state: Any, leg: Any, node: Any, count: int) -> None:
    """A node of which some pages were stored is believed to be stored."""
    _acknowledge(state, leg, node, len(leg.source) if count else 0)


@bug(stores, "_acknowledge", kills="event-mirror")
def stores_are_not_announced(state: Any, leg: Any, node: Any, count: int) -> None:
    """Routers are not told what storage has."""
    told = len(state.out)
    _acknowledge(state, leg, node, count)
    del state.out[told:]


@bug(stores, "_judge", rows=("G11",), kills="spec", faults=("half of it",))
def failed_stores_are_not_tried_again(state: Any, nodes: Any, failed: Any) -> None:
    """A store that has failed is not tried again."""
    for node in failed or nodes:
        node.store_failures = node.store_failures + 1 if failed else 0


@bug(stores, "_wanted", kills="spec", components=("full", "mamba"))
def states_are_not_stored(state: Any, node: Any) -> list[int]:
    """Only full attention is stored."""
    return [index for index in _wanted(state, node) if not index]


@bug(kills="spec")
def stores_are_tried_for_ever(patch: Patch) -> None:
    """A store that fails is tried again without end."""

    def another_try(state: Any, node: Any) -> Any:
        counted, node.store_failures = node.store_failures, 0
        wanted = _wanted(state, node)
        node.store_failures = counted
        return wanted

    def judge(state: Any, nodes: Any, failed: Any) -> None:
        for node in failed or nodes:
            node.store_failures = node.store_failures + 1 if failed else 0
        for node in failed:
            queue.enqueue(state, node)

    patch(stores, "_wanted", another_try)
    patch(stores, "_judge", judge)


@bug(stores, "_begin_store", kills="lock-bal")
def store_source_is_not_locked(state: Any, node: Any, wanted: Any) -> None:
    """A store does not lock the host copies that it reads."""
    _begin_store(state, node, wanted)
    flight = next(reversed(state.storage_flights.values()))
    release(state, flight.receipt)


@bug(stores, "_piece", rows=("H6",), kills="key-rt")
def state_is_stored_under_the_first_digest(state: Any, node: Any, leg: Any) -> Any:
    """A state is stored under the digest of the first page of its node."""
    piece = _piece(state, node, leg)
    if state.components[leg.component].positional:
        return piece
    return piece._replace(digests=tree.digests_of(state, node)[:1])


@bug(queue, "forget_storage", kills="stored", faults=("storage replaced",))
def lost_storage_is_believed(state: Any) -> None:
    """What was stored before storage was attached is still believed to be there."""
    before = state.beliefs_since
    _forget_storage(state)
    state.beliefs_since = max(1, before)


@bug(queue, "distrust", rows=("H15",), kills="spec")
def undelivered_pages_are_looked_up_again(state: Any, digest: bytes) -> None:
    """What storage promised and did not deliver is looked up again for the next request."""


@bug(queue, "trust", rows=("H15",), kills="spec")
def undelivered_pages_are_never_trusted_again(state: Any, digests: Any) -> None:
    """What storage did not deliver once is not looked up after it was stored again."""


@bug(fetched, "fetch_done", rows=("C16",), kills="spec")
def short_fetch_keeps_its_request_from_loads(state: Any, event: Any) -> None:
    """A request whose fetch came short never loads anything from host."""
    flight = state.flights.get(event.flight)
    waiters = list(flight.waiters) if flight is not None else []
    short = flight is not None and event.pages < len(flight.digests)
    _fetch_done(state, event)
    for number in waiters if short else ():
        state.requests[number].may_load = False


@bug(fetched, "_land", rows=("C16",), kills="bytes")
def failed_fetch_is_published(state: Any, flight: Any, pages: int, owner: Any) -> int:
    """Pages of a fetch that failed are put into the tree."""
    return _land(state, flight, len(flight.digests), owner)


@bug(fetched, "_land", rows=("C14",), kills="spec", faults=("storage flushed",))
def fetch_lands_after_a_flush(state: Any, flight: Any, pages: int, owner: Any) -> int:
    """A fetch that began before a flush is put into the tree after it."""
    if flight.receipt is None:
        flight.receipt = open_receipt(state, f"fetch {flight.id}", True)
    return _land(state, flight, pages, owner)


@bug(rows=("H3",), components=("full", "swa"), faults=("half of it",))
def fetch_publishes_what_one_component_has(patch: Patch) -> None:
    """A fetch that came short is published up to where it came, boundary or not."""

    def up_to_there(state: Any, flight: Any, pages: int, owner: Any) -> int:
        whole, flight.digests = flight.digests, flight.digests[:pages] if pages else flight.digests
        published = _land(state, flight, pages, owner)
        flight.digests = whole
        return published

    patch(fetched, "_land", up_to_there)
    patch(fetched, "_can_end", lambda state, flight, upto: True)


@bug(fetched, "_land", kills="spec")
def fetched_pages_are_reported_as_found(state: Any, flight: Any, pages: int, owner: Any) -> int:
    """A request is told that everything was fetched that was found."""
    _land(state, flight, pages, owner)
    return int(flight.found_pages)


@bug(fetched, "_land", kills="spec")
def last_fetched_page_is_dropped(state: Any, flight: Any, pages: int, owner: Any) -> int:
    """The last page that a fetch brought is freed instead of being put into the tree."""
    return _land(state, flight, max(0, pages - 1), owner)


@bug(fetched, "_grow", kills="spec")
def fetched_nodes_were_never_used(state: Any, flight: Any, path: Any, *rest: Any) -> bool:
    """A node that a fetch makes counts as used before everything else."""
    known = len(path)
    done = _grow(state, flight, path, *rest)
    for node in path[known:]:
        node.last_use = [0] * len(node.last_use)
    return done
