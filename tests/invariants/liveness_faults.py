"""One planted fault for each check of progress, of wasted copies and of memory.

Must not live here: what faults are made of (`spoiling`), or those of other checks (`faults`,
`hybrid_faults`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.core.actions import Backup, Granted, Refused
from hicache.core.radix.node import Node, set_pages
from hicache.core.types import frozen

from .spoiling import Fault, bend, nodes_of, on_a_node


def alone(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """The growth of a request that is alone is refused."""

    def refuse(item: Granted) -> Refused:
        return Refused(item.request, "no_pages", 1, 0, item.request, "full")

    if len(state.running) > 1 or state.flights:
        return False
    return bend(outcomes, Granted, refuse)


def progress(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """What lacks pages is said to be too large."""

    def too_large(item: Refused) -> Refused | None:
        return item._replace(reason="too_large", after=0) if item.request >= 0 else None

    return bend(outcomes, Refused, too_large)


def copy_once(state: Any, event: Any, outcomes: list[Any]) -> bool:
    """A page that host has is copied to host."""
    there = [node for node in nodes_of(state) if all(side[0] is not None for side in node.pages)]

    def again(item: Backup) -> Backup:
        source, copy = there[0].pages[0][0], item.copies[0]
        assert source is not None
        first = copy._replace(source=frozen(source[:1].copy()), target=copy.target[:1])
        return item._replace(copies=(first, *item.copies[1:]))

    return bool(there) and bend(outcomes, Backup, again)


def _views(node: Node) -> bool:
    """Its page numbers are a view of a larger array."""
    held = node.pages[0][0]
    if held is None:
        return False
    wide = np.concatenate((held, np.zeros(1000, dtype=np.int64)))
    set_pages(node, 0, 0, frozen(wide[: len(held)]))
    return True


LIVENESS_FAULTS: dict[str, Fault] = {
    "alone": alone,
    "progress": progress,
    "copy-once": copy_once,
    "rss-bound": on_a_node(_views),
}
