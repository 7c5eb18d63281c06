"""Expiry: nodes that no request used for a time go from every tier.

The core has no clock. `TimePassed` ends a period, and the core remembers its tick at the end of the
last periods. The backbone of a node is used whenever a node below it is, so what has expired is a
set of whole branches; it goes from the leaves up. Nodes are filed once, by a tick that is not after
their last use, so a period costs what it deletes and what was used since it was filed.
"""

from __future__ import annotations

from heapq import heappop, heappush

from ..errors import CallerError
from ..events import TimePassed
from ..eviction import delete, delete_dead
from ..radix.node import Node, is_locked
from ..state import State
from ..types import BACKBONE


def time_passed(state: State, event: TimePassed) -> None:
    """Delete what was not used for the configured number of periods and is not in use."""
    periods = state.config.ttl_periods
    if not periods:
        raise CallerError("time passed: expected a core with ttl_periods, found 0 periods")
    state.period_ticks.append(state.tick)
    if len(state.period_ticks) <= periods:
        return
    for node in sorted(_due(state, state.period_ticks.pop(0)), key=_deepest_first):
        if node.children or node.legs or is_locked(node):
            heappush(state.unused, (node.last_use[BACKBONE], node.id, node))
        else:
            delete(state, node)
    delete_dead(state)


def _due(state: State, tick: int) -> list[Node]:
    """Take the nodes out of the heap that were not used after this tick."""
    found, unused = [], state.unused
    while unused and unused[0][0] <= tick:
        node = heappop(unused)[2]
        if node.parent is None:
            continue
        if node.last_use[BACKBONE] <= tick:
            found.append(node)
        else:
            heappush(unused, (node.last_use[BACKBONE], node.id, node))
    return found


def _deepest_first(node: Node) -> tuple[int, int]:
    return -node.end_page, node.id
