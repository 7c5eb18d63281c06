"""One planted fault per check of windows and states: planted in a core that has both.

Must not live here: faults that a core of full attention alone can have (`faults`).
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from hicache.core.actions import Cached, Matched, Prefill
from hicache.core.radix.node import NONE, Node, set_pages

from .spoiling import Fault, bend, nodes_of, on_a_node, share_a_page


def _nearer(node: Node) -> bool:
    node.live_distance = 3 if node.live_distance == 0 else 0
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


def path_states(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """All states are kept from now on."""
    state.components[2].per_path = 0
    return True


def leaf_live(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A leaf loses its state, and nobody makes garbage of the rest."""
    for node in nodes_of(state):
        free = not node.children and not any(map(any, node.locks))
        if free and any(node.pages[tier][2] is not None for tier in (0, 1)):
            set_pages(node, 0, 2, None)
            set_pages(node, 1, 2, None)
            state.touched[node.id] = node
            return True
    return False


def durable(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A state leaves host late in the run, when no use backs it up again, and nobody says so."""
    for node in nodes_of(state) if state.tick > 80 else ():
        there = all(node.pages[tier][2] is not None for tier in (0, 1))
        if there and node.live_distance == 0 and not node.locks[1][2]:
            set_pages(node, 1, 2, None)
            state.touched[node.id] = node
            return True
    return False


def all_or_clamp(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """An insertion publishes a boundary without its state."""
    for item in outcomes:
        if type(item) is Cached and item.pages:
            for node in nodes_of(state):
                receipts = node.locks[0][2].values()
                if state.requests[item.request].receipt in receipts:
                    set_pages(node, 0, 2, None)
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
    windows = [component.window_pages for component in state.components]

    class Hoarder:
        name = "hoarder"
        whole_path = False

        def rank(self, node: Node, component: int) -> int:
            return node.last_use[component] + (1 << 30) * (node.live_distance >= windows[component])

    for queue in chain(*state.queues):
        queue.window_pages = 1 << 50
        queue.heaps = [sorted(queue.heaps[0] + queue.heaps[1], key=lambda one: one[:3]), []]
    for node in nodes_of(state):
        node.queued = (node.queued | node.queued >> 1) & (0o25252525252 >> 1)
    state.eviction = Hoarder()
    return True


def leaves(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A pass leaves no state; where there are none, it makes no boundary."""

    def forget(item: Prefill) -> Prefill | None:
        made = [slots for slots in item.states if slots.checkpoints]
        return (
            item._replace(states=tuple(one._replace(checkpoints=()) for one in made))
            if made
            else None
        )

    return bend(outcomes, Prefill, forget)


HYBRID_FAULTS: dict[str, Fault] = {
    "leaves": leaves,
    "near": on_a_node(_nearer),
    "map-swa": share_a_page(0, 1),
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
}
