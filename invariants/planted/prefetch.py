"""Bugs in `prefetch` and the flights of storage: what is looked up and fetched, and who waits
for it."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Lookup, StorageDetached
from hicache.core.eviction import make_host_room
from hicache.core.radix.locks import lock
from hicache.core.radix.node import FlightKind
from hicache.core.storage import flights, prefetch
from hicache.core.types import Tier, chain_digests, root_digest

from .base import Patch, bug

_begin_fetch = prefetch._begin_fetch
_fetch_action = prefetch._fetch_action
_why_not = prefetch._why_not
_begin_prefetch = prefetch.begin_prefetch
_missing_runs = prefetch.missing_runs
_abandon = flights.abandon
_end_every_wait = flights.end_every_wait
_in_flight = flights.in_flight


@bug(prefetch, "begin_prefetch", rows=("H17",), kills="key-rt")
def lookup_digests_begin_behind_the_match(state: Any, request: Any, again: bool = False) -> None:
    """The digests of a lookup are chained from the page where it begins."""
    told = len(state.out)
    _begin_prefetch(state, request, again)
    for at in range(told, len(state.out)):
        item = state.out[at]
        if type(item) is Lookup and item.first_page:
            key, first = request.key, item.first_page
            rows = key.raw[first * key.stride : (first + len(item.digests)) * key.stride]
            digests = tuple(chain_digests(root_digest(key.namespace), rows, key.stride))
            state.flights[item.flight].digests = digests
            state.out[at] = item._replace(digests=digests)


@bug(prefetch, "begin_prefetch", rows=("H14",), kills="spec")
def lookup_evicts_for_what_it_may_find(state: Any, request: Any, again: bool = False) -> None:
    """Host pages are evicted when a lookup begins, before storage has said that it has anything."""
    told = len(state.out)
    _begin_prefetch(state, request, again)
    asked = [item for item in state.out[told:] if type(item) is Lookup]
    if asked:
        make_host_room(state, 0, len(asked[0].digests))


@bug(prefetch, "begin_prefetch", kills="spec")
def lookup_knows_one_page_too_many(state: Any, request: Any, again: bool = False) -> None:
    """A lookup claims that the tree has one page more than it has."""
    told = len(state.out)
    _begin_prefetch(state, request, again)
    for at in range(told, len(state.out)):
        item = state.out[at]
        if type(item) is Lookup:
            state.out[at] = item._replace(known_pages=item.known_pages + 1)


@bug(prefetch, "begin_prefetch", kills="spec", components=("full", "swa"))
def lookup_requires_one_trailing_page(state: Any, request: Any, again: bool = False) -> None:
    """A lookup asks for one page of a window, however long the window is."""
    told = len(state.out)
    _begin_prefetch(state, request, again)
    for at in range(told, len(state.out)):
        item = state.out[at]
        if type(item) is Lookup:
            state.out[at] = item._replace(trailing_pages=tuple(map(bool, item.trailing_pages)))


@bug(prefetch, "begin_prefetch", kills="pref-acc")
def prefetch_budget_counts_pages(state: Any, request: Any, again: bool = False) -> None:
    """A prefetch counts against the budget of tokens with its number of pages."""
    _begin_prefetch(state, request, again)
    flight = state.flights.get(request.prefetch)
    if flight is not None:
        flight.budget_tokens = len(flight.digests)


@bug(prefetch, "try_again", kills="spec")
def joined_requests_are_not_told(state: Any, waiters: Any) -> None:
    """Only the first request of a prefetch is told that it has ended."""


@bug(prefetch, "missing_runs", kills="spec")
def fetch_brings_pages_that_are_cached(state: Any, known: Any, end: int) -> Any:
    """A fetch brings every page up to its end, also those that the tree has."""
    runs = _missing_runs(state, known, end)
    if runs[0] and known.depth and runs[0][0][0] == known.depth:
        runs[0][0] = (max(0, runs[0][0][0] - 1), runs[0][0][1])
    return runs


@bug(prefetch, "_why_not", kills="spec")
def prefetches_begin_during_a_deletion(state: Any, asked: int) -> Any:
    """A prefetch begins while storage is being deleted."""
    reason = _why_not(state, asked)
    return "" if reason == "flushed" else reason


@bug(prefetch, "_underway", kills="spec")
def every_request_looks_up_for_itself(state: Any, depth: int, digest: bytes) -> None:
    """A request looks up a page that a prefetch under way brings."""
    return


@bug(prefetch, "_budget_left", kills="pref-acc")
def prefetch_budget_is_not_kept(state: Any) -> int:
    """Prefetches begin although the budget is used up."""
    return 1 << 40


@bug(prefetch, "_begin_fetch", rows=("H5",), kills="pref-acc")
def fetch_costs_no_budget(state: Any, lookup: Any) -> Any:
    """The tokens of a prefetch are given back to the budget when its lookup has ended."""
    fetch, reason = _begin_fetch(state, lookup)
    if fetch is not None:
        fetch.budget_tokens = 0
    return fetch, reason


@bug(prefetch, "_begin_fetch", rows=("H14",), kills="spec")
def fetch_evicts_for_everything_found(state: Any, lookup: Any) -> Any:
    """A fetch makes room for every page that storage has, not only for those that it brings."""
    fetch, reason = _begin_fetch(state, lookup)
    if fetch is not None:
        make_host_room(state, 0, len(fetch.digests) + 1)
    return fetch, reason


@bug(prefetch, "_begin_fetch", kills="lock-bal")
def fetch_locks_device_copies(state: Any, lookup: Any) -> Any:
    """A fetch locks the device copies of its path too."""
    fetch: Any
    fetch, reason = _begin_fetch(state, lookup)
    if fetch is not None:
        path = prefetch.know(state, fetch.key, fetch.key.pages).path
        lock(state, fetch.receipt, path, Tier.DEVICE)
    return fetch, reason


@bug(rows=("H2",), kills="spec", components=("full",))
def shortened_fetch_keeps_all_digests(patch: Patch) -> None:
    """A fetch that has room for fewer pages than were found keeps the digests of all of them."""
    found: list[tuple[bytes, ...]] = []

    def begun(state: Any, lookup: Any) -> Any:
        found.append(lookup.digests[: lookup.found_pages])
        return _begin_fetch(state, lookup)

    def longer(state: Any, flight: Any) -> Any:
        action = _fetch_action(state, flight)
        more = found[-1][len(flight.digests) :]
        last = action.pieces[-1]
        whole = last._replace(digests=(*last.digests, *more))
        return action._replace(pieces=(*action.pieces[:-1], whole))

    patch(prefetch, "_begin_fetch", begun)
    patch(prefetch, "_fetch_action", longer)


@bug(prefetch, "_to_lock", kills="lock-bal")
def fetch_does_not_lock_its_path(state: Any, known: Any, end: int) -> list[list[Any]]:
    """A fetch does not lock the host copies that its pages continue."""
    return [[] for _ in state.components]


@bug(flights, "report_detached", rows=("C14",), kills="spec", faults=("storage detached",))
def detach_is_reported_too_early(state: Any) -> None:
    """Storage is reported as detached while actions for it are in flight."""
    if not state.attached:
        state.out.append(StorageDetached())


@bug(flights, "in_flight", kills="spec")
def one_store_too_many_in_flight(state: Any, kind: Any) -> int:
    """One store more than allowed is begun."""
    count = _in_flight(state, kind)
    return count - 1 if kind == "store" else count


@bug(flights, "leave", rows=("H18",), kills="spec")
def last_waiter_leaves_unnoticed(state: Any, request: Any) -> None:
    """A prefetch that nobody waits for any more is not abandoned."""
    flights._stop_waiting(state, request)


@bug(flights, "abandon", rows=("C2",), kills="pool-sum")
def abandoned_fetch_gives_its_pages_back_at_once(state: Any, flight: Any) -> None:
    """The host pages of a fetch that nobody waits for are freed while storage writes them."""
    _abandon(state, flight)
    if flight.kind is FlightKind.FETCH:
        for leg in flight.legs:
            state.pools[Tier.HOST][leg.component].give_back(leg.target)
        flight.legs.clear()


@bug(flights, "end_every_wait", rows=("H5",), kills="reset")
def flush_leaves_requests_waiting(state: Any, reason: Any) -> None:
    """After a flush, requests still wait for the prefetches from before it."""
    if reason != "flushed":
        _end_every_wait(state, reason)
