"""Faults of pins, of expiry and of queues with second chances, one per check.

Must not live here: what faults are made of (`spoiling`), or the faults of other checks.
"""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Pinned
from hicache.core.radix.node import Node

from .spoiling import Fault, bend, on_a_node


def pinned(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A pin is said to hold a page more than it does."""
    return bend(outcomes, Pinned, lambda item: item._replace(pages=item.pages + 1))


def expired(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """What is cached now never expires."""
    found = bool(state.unused)
    state.unused.clear()
    return found


def _in_main(node: Node) -> bool:
    """Its copy is in main, and still counts for the small queue."""
    if node.pages[0][0] is None or node.marks.in_main[0]:
        return False
    node.marks.in_main[0] = True
    return True


WANT_FAULTS: dict[str, Fault] = {
    "pinned": pinned,
    "expired": expired,
    "second-chance": on_a_node(_in_main),
}
