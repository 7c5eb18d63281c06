"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.view import CoreView

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The map from full to window pages omits nodes whose lower half has lost its window."
KILLS = "map-swa"

_peers = CoreView.peers


def _leaves_only(view: Any, tier: Any, component: int) -> Any:
    found = _peers(view, tier, component)
    for node in view.nodes():
        full, other = node.pages[tier][0], node.pages[tier][component]
        if node.children and full is not None and other is not None:
            found[full] = 0
    return found


def plant(patch: Patch) -> None:
    patch(CoreView, "peers", _leaves_only)
