"""What planted faults are made of: finding a record to spoil, or an answer to bend.

A fault is a function (state, event, outcomes) -> bool that tries to spoil the core's state or the
outcomes after an operation; True once it has. Spoiled nodes are marked as touched, as the core
would mark them: forgetting that is a fault of its own, which the recount finds. Must not live here:
the faults (`faults`, `hybrid_faults`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from hicache.core.radix.node import Node, set_pages
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
