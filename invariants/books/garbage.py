"""Counts cached pages that no live boundary needs, for reports.

Lives here: one count over all nodes of the view. Does not contain checks, and does not use the
core's own distances.
"""

from __future__ import annotations

from hicache.core.radix.node import Node
from hicache.core.types import Tier
from hicache.core.view import CoreView

from .kinds import EVERYTHING, kinds_of
from .liveness import is_live


def garbage_report(view: CoreView) -> dict[str, dict[str, int]]:
    """Returns, per pool ("device swa"), the cached pages and those that no live boundary
    requires.
    """
    kinds = kinds_of(view.config)
    report = {
        f"{tier.name.lower()} {kind.name}": {"cached": 0, "garbage": 0}
        for tier in (Tier.DEVICE, Tier.HOST)
        for kind in kinds
    }
    nodes = list(view.nodes())
    for node, distance in zip(nodes, _distances(nodes, view), strict=True):
        for tier in (Tier.DEVICE, Tier.HOST):
            for kind in kinds:
                pages = node.pages[tier][kind.at]
                if pages is not None:
                    found = report[f"{tier.name.lower()} {kind.name}"]
                    found["cached"] += len(pages)
                    found["garbage"] += 0 if distance < kind.need else len(pages)
    return report


def _distances(nodes: list[Node], view: CoreView) -> list[int]:
    """Returns for each node, parents first, the pages down to the nearest live boundary at or below
    its end.
    """
    kinds, nowhere = kinds_of(view.config), EVERYTHING
    below: dict[int, int] = {}
    for node in reversed(nodes):
        found = 0 if is_live(node, kinds) else below.get(node.id, nowhere)
        below[node.id] = found
        if node.parent is not None and found < nowhere:
            distance = found + node.end_page - node.parent.end_page
            below[node.parent.id] = min(below.get(node.parent.id, nowhere), distance)
    return [below[node.id] for node in nodes]
