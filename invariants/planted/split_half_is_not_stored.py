"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import queue

from .base import Patch

ROWS = ("G10",)
TITLE = "When a node that waits to be stored is split, its upper half is forgotten."
KILLS = "stored"

_follow_split = queue.follow_split


def _lower_only(state: Any, upper: Any, node: Any) -> None:
    _follow_split(state, upper, node)
    queue.dequeue(state, upper)


def plant(patch: Patch) -> None:
    patch(queue, "follow_split", _lower_only)
