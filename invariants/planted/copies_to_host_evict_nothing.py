"""Planted in `backup._fitting`: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import backup
from invariants.reasons import Reason

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy to host needs pages that are free; none are evicted for it."
KILLS = ""
EXCUSES = (Reason.NO_ROOM,)

_fitting = backup._fitting


def _into_free_pages(state: Any, nodes: list[Any]) -> list[Any]:
    fitting: list[Any] = _fitting(state, nodes)
    while fitting:
        wanted = [0] * len(state.components)
        for node, components in fitting:
            for index in components:
                wanted[index] += len(node.pages[0][index])
        if all(count <= pool.free for count, pool in zip(wanted, state.pools[1], strict=True)):
            break
        fitting = fitting[:-1]
    return fitting


def plant(patch: Patch) -> None:
    patch(backup, "_fitting", _into_free_pages)
