"""One planted fault for each check of storage: a record corrupted, or an answer bent.

Must not live here: what faults are made of (`spoiling`), or those of other checks (`faults`).
"""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Fetch, Lookup, Prefetched, Refused, Store
from hicache.core.events import FetchDone

from .spoiling import Fault, bend, nodes_of


def _pieces_of_others(item: Any) -> Any:
    """Each piece has the digests in the opposite order."""
    first = item.pieces[0]
    if len(first.digests) < 2:
        return None
    return item._replace(pieces=(first._replace(digests=first.digests[::-1]), *item.pieces[1:]))


def key_rt(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Store, _pieces_of_others)


def key_inj(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """Two pages of a lookup have one digest."""

    def again(item: Lookup) -> Lookup | None:
        if len(item.digests) < 2:
            return None
        return item._replace(digests=(item.digests[0],) * len(item.digests))

    return bend(outcomes, Lookup, again)


def len_eq(state: Any, event: Any, outcomes: list[Any]) -> bool:
    def longer(item: Fetch) -> Fetch:
        last = item.pieces[-1]
        more = last._replace(digests=(*last.digests, b"more"))
        return item._replace(pieces=(*item.pieces[:-1], more))

    return bend(outcomes, Fetch, longer)


def pref_acc(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for flight in state.storage_flights.values():
        if flight.budget_tokens:
            flight.budget_tokens -= 1
            return True
    return False


def prefetch_wait(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A request is not told of the end of its prefetch."""
    told = [item for item in outcomes if type(item) is Prefetched and type(event) is FetchDone]
    for item in told:
        outcomes.remove(item)
    return bool(told)


def never_device(state: Any, event: Any, outcomes: list[Any]) -> bool:
    flights = list(state.storage_flights)

    def named(item: Refused) -> Refused | None:
        lacking = flights and item.reason in ("no_pages", "writing_back")
        return item._replace(reason="writing_back", after=flights[0]) if lacking else None

    return bend(outcomes, Refused, named)


def fault_soft(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """Storage is trusted again although it did not deliver."""
    known = bool(state.distrusted)
    state.distrusted.clear()
    return known


def stored(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A node is believed to be stored that is not."""
    for node in nodes_of(state):
        if state.attached and node.pages[1][0] is not None and not node.stored & 1:
            node.stored, node.stored_since = node.stored | 1, state.beliefs_since
            state.touched[node.id] = node
            return True
    return False


def whole_fetch(state: Any, event: Any, outcomes: list[Any]) -> bool:
    def more(item: Prefetched) -> Prefetched | None:
        short = item.fetched_pages < item.found_pages and type(event) is FetchDone
        return item._replace(fetched_pages=item.fetched_pages + 1) if short else None

    return bend(outcomes, Prefetched, more)


STORAGE_FAULTS: dict[str, Fault] = {
    "key-rt": key_rt,
    "key-inj": key_inj,
    "len-eq": len_eq,
    "pref-acc": pref_acc,
    "prefetch-wait": prefetch_wait,
    "never-device": never_device,
    "fault-soft": fault_soft,
    "stored": stored,
    "whole-fetch": whole_fetch,
}
