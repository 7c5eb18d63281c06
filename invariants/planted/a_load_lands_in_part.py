"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import transfers

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Of a load that is done only full attention's pages become nodes'."
KILLS = "all-or-clamp"

_adopt = transfers._adopt


def _backbone_only(state: Any, node: Any, index: int, pages: Any) -> bool:
    return not index and _adopt(state, node, index, pages)


def plant(patch: Patch) -> None:
    patch(transfers, "_adopt", _backbone_only)
