"""One planted fault per check of windows and states: planted in a core that has both.

Must not live here: faults that a core of full attention alone can have (`faults`).
"""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Matched
from hicache.core.radix.node import NONE, Node

from .spoiling import Fault, nodes_of, on_a_node, share_a_page


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
