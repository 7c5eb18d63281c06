"""One planted fault per check: a record corrupted, or an answer bent, right behind the core.

A fault is a function (state, event, outcomes) -> bool that tries to spoil the core's state or the
outcomes after an operation; True once it has. Corrupted nodes are marked as touched, as the core
would mark them: forgetting that is a fault of its own, which the recount finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hicache.core.actions import (
    Backup,
    Cached,
    Evicted,
    Granted,
    KvStored,
    Load,
    Matched,
    Prefill,
    Refused,
    Seated,
)
from hicache.core.events import Aborted, Finished, Flushed
from hicache.core.node import NONE, Node, Receipt
from hicache.core.types import Tier, frozen

Fault = Callable[[Any, Any, list[Any]], bool]


def nodes_of(state: Any) -> Iterator[Node]:
    stack = list(state.root.children.values())
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())


def _bend(outcomes: list[Any], kind: type, change: Callable[[Any], Any]) -> bool:
    for at, item in enumerate(outcomes):
        if type(item) is kind:
            bent = change(item)
            if bent is not None:
                outcomes[at] = bent
                return True
    return False


def _share_a_page(tier: int, index: int = 0) -> Fault:
    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        found = [node for node in nodes_of(state) if node.pages[tier][index] is not None]
        if len(found) < 2:
            return False
        one, other = found[:2]
        stolen = one.pages[tier][index].copy()
        stolen[-1] = other.pages[tier][index][0]
        one.pages[tier][index] = frozen(stolen)
        state.touched[one.id], state.touched[other.id] = one, other
        return True

    return fault


def pool_sum(state: Any, event: Any, outcomes: list[Any]) -> bool:
    state.pools[0][0].protected += 1
    return True


def lock_bal(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        if node.pages[0][0] is not None:
            node.holders[0][0][999999] = Receipt(999999, "nobody", [])
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
        if node.holders[0][0] and not node.children and node.parent is not None:
            del node.parent.children[node.label]
            state.touched[node.id] = node
            node.parent = None
            return True
    return False


def leaf_set(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        if node.queued and not node.children and not any(node.holders[0]):
            node.queued = 0
            state.touched[node.id] = node
            return True
    return False


def _on_a_node(change: Callable[[Node], bool]) -> Fault:
    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        for node in nodes_of(state):
            if change(node):
                state.touched[node.id] = node
                return True
        return False

    return fault


def _longer(node: Node) -> bool:
    node.end += 1
    return True


def _fresher(node: Node) -> bool:
    node.last_use[0] += 1
    return True


def _empty(node: Node) -> bool:
    if node.children or any(node.holders[0]) or any(node.holders[1]):
        return False
    node.pages = [[None for _ in tier] for tier in node.pages]
    return True


def _without(tier: int) -> Callable[[Node], bool]:
    def change(node: Node) -> bool:
        below = any(child.pages[tier][0] is not None for child in node.children.values())
        if not below or node.pages[tier][0] is None:
            return False
        node.pages[tier][0] = None
        return True

    return change


def match_ref(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return _bend(outcomes, Matched, lambda item: item._replace(device_pages=item.device_pages + 1))


def anchor(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for item in outcomes:
        if type(item) is Cached:
            request = state.requests[item.request]
            if request.shared >= 2:
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

    return _bend(outcomes, Load, swap)


def hb_write(state: Any, event: Any, outcomes: list[Any]) -> bool:
    others = [one for one in state.flights.values() if one.kind == "backup" and one.legs]

    def onto(item: Prefill) -> Prefill | None:
        if not others or item.end <= item.start:
            return None
        table = item.table.copy()
        table[item.start // state.config.page_size] = others[0].legs[0].source[0]
        return item._replace(table=frozen(table), tables=(table, *item.tables[1:]))

    return _bend(outcomes, Prefill, onto)


def read_after_arrive(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return _bend(outcomes, Prefill, lambda item: item._replace(after=()) if item.after else None)


def alias(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return _bend(outcomes, Cached, lambda item: item._replace(tables=(item.table.copy(),)))


def live_ack(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return _bend(outcomes, Backup, lambda item: item._replace(flight=1))


def live_evict(state: Any, event: Any, outcomes: list[Any]) -> bool:
    if not state.pools[0][0].free:
        return False
    return _bend(outcomes, Granted, lambda item: Refused(item.request, "no_pages", 1, 0, -1))


def no_oom(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return _bend(outcomes, Granted, lambda item: item._replace(table=item.table[:-1]))


def event_mirror(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for item in outcomes:
        if type(item) is KvStored:
            outcomes.remove(item)
            return True
    return False


def metric_ref(state: Any, event: Any, outcomes: list[Any]) -> bool:
    return _bend(
        outcomes, Seated, lambda item: item._replace(computed_tokens=item.computed_tokens + 1)
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


# Faults of windows and states: planted in a core that has both.


def _nearer(node: Node) -> bool:
    node.near = 3 if node.near == 0 else 0
    return True


def lock_span(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for item in outcomes:
        request = state.requests.get(item.request) if type(item) is Cached else None
        if request is not None:
            others = [(node, 0) for node in nodes_of(state) if node.pages[0][1] is not None]
            request.receipt.locked[1].extend(others)
            return sum(len(node.pages[0][1]) for node, _ in others) > 3
    return False


def _out_of_line(tier: int) -> Fault:
    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        for node in nodes_of(state):
            for index in (1, 2):
                if node.pages[tier][index] is not None and not node.holders[tier][index]:
                    node.queued = 0
                    state.touched[node.id] = node
                    return True
        return False

    return fault


def dead_leaf(state: Any, event: Any, outcomes: list[Any]) -> bool:
    for node in nodes_of(state):
        used = node.children or node.legs or any(map(any, node.holders))
        if node.near == 0 and not used:
            node.near = NONE
            state.touched[node.id] = node
            return True
    return False


def path_states(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """All states are kept from now on."""
    state.components[2].per_path = 0
    return True


def leaf_live(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A leaf loses its state, and nobody makes garbage of the rest."""
    for node in nodes_of(state):
        free = not node.children and not any(map(any, node.holders))
        if free and any(node.pages[tier][2] is not None for tier in (0, 1)):
            node.pages[0][2] = node.pages[1][2] = None
            state.touched[node.id] = node
            return True
    return False


def durable(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A state leaves host late in the run, when no use backs it up again, and nobody says so."""
    for node in nodes_of(state) if state.tick > 80 else ():
        there = all(node.pages[tier][2] is not None for tier in (0, 1))
        if there and node.near == 0 and not node.holders[1][2]:
            node.pages[1][2] = None
            state.touched[node.id] = node
            return True
    return False


def all_or_clamp(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """An insertion publishes a boundary without its state."""
    for item in outcomes:
        if type(item) is Cached and item.pages:
            for node in nodes_of(state):
                receipts = node.holders[0][2].values()
                if state.requests[item.request].receipt in receipts:
                    node.pages[0][2] = None
                    state.touched[node.id] = node
                    return True
    return False


def work_bound(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A match looks at every node."""
    if not any(type(item) is Matched for item in outcomes):
        return False
    state.touched.update((node.id, node) for node in nodes_of(state))
    return len(state.touched) > 40


def garbage_first(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """Garbage is found with what serves from now on, and ranks behind it."""
    reaches = [component.reach for component in state.components]

    class Hoarder:
        name = "hoarder"
        whole_path = False

        def rank(self, node: Node, component: int) -> int:
            return node.last_use[component] + (1 << 30) * (node.near > reaches[component])

    for queue in state.queues:
        queue.reach = 1 << 50
        queue.heaps = [sorted(queue.heaps[0] + queue.heaps[1], key=lambda one: one[:3]), []]
    for node in nodes_of(state):
        node.queued = (node.queued | node.queued >> 1) & (0o25252525252 >> 1)
    state.eviction = Hoarder()
    return True


def answers(state: Any, event: Any, outcomes: list[Any]) -> bool:
    found = [at for at, item in enumerate(outcomes) if type(item) is Matched]
    for at in found:
        del outcomes[at]
    return bool(found)


def backup_due(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """The nodes of a copy were never used, and no eviction waits for it."""
    copied = [item for item in outcomes if type(item) is Backup]
    for item in copied:
        flight = state.flights[item.flight]
        for leg in flight.legs:
            leg.node.hits = 0
        for index, pages in enumerate(flight.drains):
            state.draining[index] -= pages
    return bool(copied)


def leaves(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A pass leaves no state; where there are none, it makes no boundary."""

    def forget(item: Prefill) -> Prefill | None:
        made = [slots for slots in item.states if slots.checkpoints]
        return (
            item._replace(states=tuple(one._replace(checkpoints=()) for one in made))
            if made
            else None
        )

    return _bend(outcomes, Prefill, forget)


FAULTS: dict[str, Fault] = {
    "answers": answers,
    "backup-due": backup_due,
    "leaves": leaves,
    "near": _on_a_node(_nearer),
    "map-swa": _share_a_page(0, 1),
    "lock-span": lock_span,
    "dlru": _out_of_line(0),
    "hlru": _out_of_line(1),
    "leaf-live": leaf_live,
    "dead-leaf": dead_leaf,
    "path-states": path_states,
    "durable": durable,
    "all-or-clamp": all_or_clamp,
    "work-bound": work_bound,
    "garbage-first": garbage_first,
    "evict-min": evict_min,
    "order-ref": order_ref,
    "own-d": _share_a_page(0),
    "own-h": _share_a_page(1),
    "pool-sum": pool_sum,
    "lock-bal": lock_bal,
    "pin-io": pin_io,
    "pin-node": pin_node,
    "leaf-set": leaf_set,
    "tree-link": _on_a_node(_longer),
    "lru": _on_a_node(_fresher),
    "dead-node": _on_a_node(_empty),
    "parent-bk": _on_a_node(_without(1)),
    "device-prefix": _on_a_node(_without(0)),
    "match-ref": match_ref,
    "anchor": anchor,
    "bytes": bytes_,
    "hb-write": hb_write,
    "read-after-arrive": read_after_arrive,
    "alias": alias,
    "live-ack": live_ack,
    "live-evict": live_evict,
    "no-oom": no_oom,
    "event-mirror": event_mirror,
    "metric-ref": metric_ref,
    "reset": reset,
    "generation": generation,
    "quiescence": quiescence,
}
