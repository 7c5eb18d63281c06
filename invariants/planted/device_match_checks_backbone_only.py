"""Planted in `matching.anchors`: the device anchor looks at one component."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import matching

from .base import Patch

ROWS: tuple[str, ...] = ("E1",)
TITLE = "A device match is accepted where the window or the state is missing on device."
KILLS = ""

_anchors = matching.anchors


def _backbone_only(state: Any, path: Any, part: int = 0) -> Any:
    found = _anchors(state, path, part)
    ends = matching._ends(path, part)
    unbounded = state.components[0].window_pages
    return found._replace(device=matching._deepest(path, ends, found.best, 0, unbounded, True))


def plant(patch: Patch) -> None:
    patch(matching, "anchors", _backbone_only)
