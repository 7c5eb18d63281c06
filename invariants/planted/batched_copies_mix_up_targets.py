"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.runtime import lanes

from .base import Patch

ROWS: tuple[str, ...] = ("C11",)
TITLE = "In a batch of several copies, the targets are in another order than the sources."
KILLS = ""
EXECUTOR = "device"

_merged = lanes._merged


def _turned(actions: tuple[Any, ...]) -> dict[str, Any]:
    found = _merged(actions)
    for name in found:
        parts = [copy for one in actions for copy in one.copies if copy.component == name]
        targets = np.concatenate([copy.target for copy in reversed(parts)])
        found[name] = (found[name][0], targets)
    return found


def plant(patch: Patch) -> None:
    patch(lanes, "_merged", _turned)
