"""Bugs in `fetched`: what a fetch brought is put into the tree."""

from __future__ import annotations

from typing import Any

from hicache.core.radix.locks import open_receipt
from hicache.core.storage import fetched

from .base import Patch, bug

_grow = fetched._grow
_land = fetched._land
_fetch_done = fetched.fetch_done


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
