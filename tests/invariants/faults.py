"""One planted fault per check: a record corrupted, or an answer bent, right behind the core.

A fault is a function (state, event, outcomes) -> bool that tries to spoil the core's state or the
outcomes after an operation; True once it has. Spoiled nodes are marked as touched, as the core
would mark them: forgetting that is a fault of its own, which the recount finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    KvStored,
    Load,
    Matched,
    Prefill,
    Refused,
    Store,
)
from hicache.core.events import Aborted, Finished, Flushed
from hicache.core.node import NONE, Node, Receipt, set_pages
from hicache.core.types import frozen

Fault = Callable[[Any, Any, list[Any]], bool]


def nodes_of(state: Any) -> Iterator[Node]:
    stack = list(state.root.children.values())
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())


def bend(outcomes: list[Any], kind: type, change: Callable[[Any], Any]) -> bool:
    for at, item in enumerate(outcomes):
        if type(item) is kind:
            bent = change(item)
            if bent is not None:
                outcomes[at] = bent
                return True
    return False


def share_a_page(tier: int, index: int = 0) -> Fault:
    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        found = [node for node in nodes_of(state) if node.pages[tier][index] is not None]
        if len(found) < 2:
            return False
        one, other = found[:2]
        stolen = one.pages[tier][index].copy()
        stolen[-1] = other.pages[tier][index][0]
        set_pages(one, tier, index, frozen(stolen))
        state.touched[one.id], state.touched[other.id] = one, other
        return True

    return fault


def on_a_node(change: Callable[[Node], bool]) -> Fault:
    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        for node in nodes_of(state):
            if change(node):
                state.touched[node.id] = node
                return True
        return False

    return fault


def _nearer(node: Node) -> bool:
    node.live_distance = 3 if node.live_distance == 0 else 0
    return True


def _out_of_line(tier: int) -> Fault:
    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        for node in nodes_of(state):
            for index in (1, 2):
                if node.pages[tier][index] is not None and not node.locks[tier][index]:
                    node.queued = 0
                    state.touched[node.id] = node
                    return True
        return False

    return fault


def dead_leaf(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        used = node.children or node.legs or any(map(any, node.locks))
        if node.live_distance == 0 and not used:
            node.live_distance = NONE
            state.touched[node.id] = node
            return True
    return False


def work_bound(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A match looks at every node."""
    if not any(type(item) is Matched for item in outcomes):
        return False
    state.touched.update((node.id, node) for node in nodes_of(state))
    return len(state.touched) > 40


HYBRID_FAULTS: dict[str, Fault] = {
    "near": on_a_node(_nearer),
    "map-swa": share_a_page(0, 1),
    "dlru": _out_of_line(0),
    "hlru": _out_of_line(1),
    "dead-leaf": dead_leaf,
    "work-bound": work_bound,
}


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


def pool_sum(state: Any, event: Any, outcomes: list[Any]) -> bool:
    state.pools[0][0].protected += 1
    return True


def lock_bal(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        if node.pages[0][0] is not None:
            node.locks[0][0][999999] = Receipt(999999, "nobody", [])
            state.touched[node.id] = node
            return True
    return False


def pin_io(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for flight in state.flights.values():
        if flight.kind == "backup":
            state.pools[1][0].generation[flight.legs[0].target] += 1
            return True
    return False


def pin_node(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        if node.locks[0][0] and not node.children and node.parent is not None:
            del node.parent.children[node.label]
            state.touched[node.id] = node
            node.parent = None
            return True
    return False


def leaf_set(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        if node.queued and not node.children and not any(node.locks[0]):
            node.queued = 0
            state.touched[node.id] = node
            return True
    return False


def _longer(node: Node) -> bool:
    node.end_page += 1
    return True


def _fresher(node: Node) -> bool:
    node.last_use[0] += 1
    return True


def _empty(node: Node) -> bool:
    if node.children or any(node.locks[0]) or any(node.locks[1]):
        return False
    node.pages = tuple(tuple(None for _ in tier) for tier in node.pages)
    return True


def _without(tier: int) -> Callable[[Node], bool]:
    def change(node: Node) -> bool:
        below = any(child.pages[tier][0] is not None for child in node.children.values())
        if not below or node.pages[tier][0] is None:
            return False
        set_pages(node, tier, 0, None)
        return True

    return change


def anchor(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for item in outcomes:
        if type(item) is Cached:
            request = state.requests[item.request]
            if request.shared_pages >= 2:
                table = request.tables[0].copy()
                table[:2] = table[:2][::-1]
                request.tables[0] = frozen(table)
                state.touched_requests[request.id] = None
                return True
    return False


def bytes_(state: Any, event: Any, outcomes: list[Any]) -> bool:
    def swap(item: Load) -> Load | None:
        copy = item.copies[0]
        if len(copy.source) < 2:
            return None
        return item._replace(
            copies=(copy._replace(source=frozen(copy.source[::-1].copy())), *item.copies[1:])
        )

    return bend(outcomes, Load, swap)


def hb_write(state: Any, event: Any, outcomes: list[Any]) -> bool:
    others = [one for one in state.flights.values() if one.kind == "backup" and one.legs]

    def onto(item: Prefill) -> Prefill | None:
        if not others or item.end_token <= item.start_token:
            return None
        table = item.tables[0].copy()
        table[item.start_token // state.config.page_size] = others[0].legs[0].source[0]
        return item._replace(tables=(frozen(table), *item.tables[1:]))

    return bend(outcomes, Prefill, onto)


def read_after_arrive(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Prefill, lambda item: item._replace(after=()) if item.after else None)


def alias(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Cached, lambda item: item._replace(tables=(item.tables[0].copy(),)))


def live_ack(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Backup, lambda item: item._replace(flight=1))


def event_mirror(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for item in outcomes:
        if type(item) is KvStored:
            outcomes.remove(item)
            return True
    return False


def metric_ref(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(
        outcomes, Admitted, lambda item: item._replace(tokens_to_compute=item.tokens_to_compute + 1)
    )


def reset(state: Any, event: Any, outcomes: list[Any]) -> bool:
    if type(event) is not Flushed or any(type(item) is Refused for item in outcomes):
        return False
    state.pools[0][0].protected = 1
    return True


def generation(state: Any, event: Any, outcomes: list[Any]) -> bool:
    if type(event) not in (Finished, Aborted):
        return False
    state.pools[0][0].generation[:] = 0
    return bool(np.count_nonzero(state.pools[0][0].state == 0))


def quiescence(state: Any, event: Any, outcomes: list[Any]) -> bool:
    state.pools[0][0].protected += 1
    return True


def progress(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """What lacks pages is said to be too large."""

    def too_large(item: Refused) -> Refused | None:
        return item._replace(reason="too_large", after=0) if item.request >= 0 else None

    return bend(outcomes, Refused, too_large)


def _views(node: Node) -> bool:
    """Its page numbers are a view of a larger array."""
    held = node.pages[0][0]
    if held is None:
        return False
    wide = np.concatenate((held, np.zeros(1000, dtype=np.int64)))
    set_pages(node, 0, 0, frozen(wide[: len(held)]))
    return True


FAULTS: dict[str, Fault] = (
    HYBRID_FAULTS
    | STORAGE_FAULTS
    | {
        "own-d": share_a_page(0),
        "own-h": share_a_page(1),
        "progress": progress,
        "rss-bound": on_a_node(_views),
        "pool-sum": pool_sum,
        "lock-bal": lock_bal,
        "pin-io": pin_io,
        "pin-node": pin_node,
        "leaf-set": leaf_set,
        "tree-link": on_a_node(_longer),
        "lru": on_a_node(_fresher),
        "dead-node": on_a_node(_empty),
        "parent-bk": on_a_node(_without(1)),
        "device-prefix": on_a_node(_without(0)),
        "anchor": anchor,
        "bytes": bytes_,
        "hb-write": hb_write,
        "read-after-arrive": read_after_arrive,
        "alias": alias,
        "live-ack": live_ack,
        "event-mirror": event_mirror,
        "metric-ref": metric_ref,
        "reset": reset,
        "generation": generation,
        "quiescence": quiescence,
    }
)
