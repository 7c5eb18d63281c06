"""Counts cached pages that no live boundary needs, for reports.

Lives here: one count over all nodes of the view. Does not contain checks, and does not use the
core's own distances.
"""

from __future__ import annotations

from hicache.core.types import Tier
from hicache.core.view import CoreView

from .distances import recounted, widest
from .kinds import kinds_of
from .mirror import NodeMirror, serves


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
    mirrors = {0: NodeMirror(0, len(kinds))}
    for node in view.nodes():
        mirror = mirrors[node.id] = NodeMirror(node.id, len(kinds))
        mirror.parent = mirrors[node.parent.id] if node.parent is not None else None
        mirror.end_page, mirror.pages = node.end_page, [*node.pages[0], *node.pages[1]]
    recounted(list(mirrors.values()), kinds, widest(kinds))
    for mirror in mirrors.values():
        for slot, pages in enumerate(mirror.pages):
            tier, index = divmod(slot, len(kinds))
            if pages is not None:
                found = report[f"{Tier(tier).name.lower()} {kinds[index].name}"]
                found["cached"] += len(pages)
                found["garbage"] += 0 if serves(kinds[index], mirror.live_distance) else len(pages)
    return report
