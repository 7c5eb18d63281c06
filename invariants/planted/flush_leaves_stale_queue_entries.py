"""Planted: see TITLE."""

from __future__ import annotations

from itertools import chain
from typing import Any

from hicache.core import core

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The eviction queues keep entries of nodes that a flush has removed."
KILLS = "reset"

_flush = core._flush


def _keep_entries(state: Any, event: Any) -> None:
    before = [[list(heap) for heap in queue.heaps] for queue in chain(*state.queues)]
    _flush(state, event)
    for queue, heaps in zip(chain(*state.queues), before, strict=True):
        for heap, entries in zip(queue.heaps, heaps, strict=True):
            heap[:] = entries


def plant(patch: Patch) -> None:
    patch(core, "_flush", _keep_entries)
