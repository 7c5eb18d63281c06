"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.runtime import lanes

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A copy also writes the page after its last one."
KILLS = ""
EXECUTOR = "device"

_merged = lanes._merged


def _wider(actions: tuple[Any, ...]) -> dict[str, Any]:
    found = _merged(actions)
    for name, (source, target) in found.items():
        below = int(target[-1]) - 1
        if below >= 0 and below not in target:
            found[name] = (np.append(source, source[-1]), np.append(target, below))
    return found


def plant(patch: Patch) -> None:
    patch(lanes, "_merged", _wider)
