"""One planted fault per check: a record corrupted, or an answer bent, right behind the core.

Must not live here: what faults are made of (`spoiling`), those of windows and states
(`hybrid_faults`), of progress, copies and memory (`liveness_faults`), of storage
(`storage_faults`), or of pins and expiry (`want_faults`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Granted,
    KvStored,
    Load,
    Matched,
    Prefill,
    Refused,
)
from hicache.core.events import Aborted, Finished, Flushed
from hicache.core.radix.node import Node, Receipt, set_pages
from hicache.core.types import Tier, frozen

from .hybrid_faults import HYBRID_FAULTS
from .liveness_faults import LIVENESS_FAULTS
from .spoiling import Fault, bend, nodes_of, on_a_node, share_a_page
from .storage_faults import STORAGE_FAULTS
from .want_faults import WANT_FAULTS


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


def match_ref(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Matched, lambda item: item._replace(device_pages=item.device_pages + 1))


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


def exclusive(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A load under way has forgotten that it is to give up the host copies."""
    for flight in state.flights.values():
        if any(flight.gives_up):
            for index, pages in enumerate(flight.gives_up):
                state.giving_up[index] -= pages
            flight.gives_up = []
            return True
    return False


def live_ack(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(outcomes, Backup, lambda item: item._replace(flight=1))


def live_evict(state: Any, event: Any, outcomes: list[Any]) -> bool:
    if not state.pools[0][0].free:
        return False
    return bend(outcomes, Granted, lambda item: Refused(item.request, "no_pages", 1, 0, -1, "full"))


def no_oom(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return bend(
        outcomes,
        Granted,
        lambda item: item._replace(tables=(item.tables[0][:-1], *item.tables[1:])),
    )


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


def evict_min(state: Any, event: Any, outcomes: list[Any]) -> bool:
    if not any(type(item) is Matched for item in outcomes):
        return False
    outcomes.append(Evicted(Tier.DEVICE, "full", np.arange(2), 0, True))
    return True


def order_ref(state: Any, event: Any, outcomes: list[Any]) -> bool:
    class Hottest:
        name = "hottest"

        whole_path = False

        def rank(self, node: Node, component: int) -> int:
            return -node.last_use[component]

    state.eviction = Hottest()
    return True


def answers(state: Any, event: Any, outcomes: list[Any]) -> bool:
    found = [at for at, item in enumerate(outcomes) if type(item) is Matched]
    for at in found:
        del outcomes[at]
    return bool(found)


def backup_due(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """From now on the core waits for more uses than its policy declared."""

    class Later:
        name, threshold, on_evict, contiguous = "later", 1 << 30, False, True

    state.writes = Later()
    return True


FAULTS: dict[str, Fault] = (
    HYBRID_FAULTS
    | LIVENESS_FAULTS
    | STORAGE_FAULTS
    | WANT_FAULTS
    | {
        "answers": answers,
        "backup-due": backup_due,
        "evict-min": evict_min,
        "order-ref": order_ref,
        "own-d": share_a_page(0),
        "own-h": share_a_page(1),
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
        "match-ref": match_ref,
        "anchor": anchor,
        "bytes": bytes_,
        "hb-write": hb_write,
        "read-after-arrive": read_after_arrive,
        "alias": alias,
        "exclusive": exclusive,
        "live-ack": live_ack,
        "live-evict": live_evict,
        "no-oom": no_oom,
        "event-mirror": event_mirror,
        "metric-ref": metric_ref,
        "reset": reset,
        "generation": generation,
        "quiescence": quiescence,
    }
)
