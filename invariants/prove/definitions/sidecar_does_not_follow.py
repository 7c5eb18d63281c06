"""Planted in `Arena.copy`: pools with an anchor are left out."""

from __future__ import annotations

from typing import Any

from hicache.memory.arena import Arena
from hicache.memory.layouts import copy_kernel

from ...planted.base import Patch

TITLE = "What accompanies the rows of a layer is not copied to host and back with them."
FAMILIES: tuple[str, ...] = ("draft", "deepseek-v32", "deepseek-v4")


def _alone(self: Arena, component: str, source: Any, target: Any, layers: tuple[int, int]) -> None:
    ends = (self.pools(source[0], component), self.pools(target[0], component))
    for read, written in zip(*ends, strict=True):
        if not read.plan.pool.anchor:
            chosen = read.plan.layers_in(*layers)
            copy_kernel(read.view, source[1], written.view, target[1], chosen)


def plant(patch: Patch) -> None:
    patch(Arena, "copy", _alone)
