"""Planted in `matching.anchors`: the match of one component is used for all."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import matching

from .base import Patch

ROWS: tuple[str, ...] = ("E2",)
TITLE = "A load goes as deep as full attention does, deeper than the windows and states."
KILLS = "match-ref"

_anchors = matching.anchors


def _too_deep(state: Any, path: Any, part: int = 0) -> Any:
    found = _anchors(state, path, part)
    return found._replace(best=found.depths[0])


def plant(patch: Patch) -> None:
    patch(matching, "anchors", _too_deep)
