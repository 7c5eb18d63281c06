"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import queue, stores

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A store that fails is tried again without end."
KILLS = "stored"

_wanted = stores._wanted


def _another_try(state: Any, node: Any) -> Any:
    counted, node.store_failures = node.store_failures, 0
    wanted = _wanted(state, node)
    node.store_failures = counted
    return wanted


def _judge(state: Any, nodes: Any, failed: Any) -> None:
    for node in failed or nodes:
        node.store_failures = node.store_failures + 1 if failed else 0
    for node in failed:
        queue.enqueue(state, node)


def plant(patch: Patch) -> None:
    patch(stores, "_wanted", _another_try)
    patch(stores, "_judge", _judge)
