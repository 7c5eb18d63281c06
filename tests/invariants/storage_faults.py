"""One planted fault for each check of storage: a record corrupted, or an answer bent.

Must not live here: what faults are made of (`spoiling`), or those of other checks (`faults`).
"""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Refused, Store

from .spoiling import Fault, bend, nodes_of


def _pieces_of_others(item: Any) -> Any:
    """Each piece has the digests in the opposite order."""
    first = item.pieces[0]
    if len(first.digests) < 2:
        return None
    return item._replace(pieces=(first._replace(digests=first.digests[::-1]), *item.pieces[1:]))


def key_rt(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Store, _pieces_of_others)


def pref_acc(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for flight in state.storage_flights.values():
        if flight.budget_tokens:
            flight.budget_tokens -= 1
            return True
    return False


def never_device(state: Any, event: Any, outcomes: list[Any]) -> bool:
    flights = list(state.storage_flights)

    def named(item: Refused) -> Refused | None:
        lacking = flights and item.reason in ("no_pages", "writing_back")
        return item._replace(reason="writing_back", after=flights[0]) if lacking else None

    return bend(outcomes, Refused, named)


def stored(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A node is believed to be stored that is not."""
    for node in nodes_of(state):
        if state.attached and node.pages[1][0] is not None and not node.stored & 1:
            node.stored, node.stored_since = node.stored | 1, state.beliefs_since
            state.touched[node.id] = node
            return True
    return False


STORAGE_FAULTS: dict[str, Fault] = {
    "key-rt": key_rt,
    "pref-acc": pref_acc,
    "never-device": never_device,
    "stored": stored,
}
