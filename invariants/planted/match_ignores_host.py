"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.radix import matching

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The match that a scheduler plans with ignores what is on host."
KILLS = "match-ref"

_probe = matching.probe


def _device_only(state: Any, key: Any, limit: int) -> tuple[int, int, tuple[int, ...]]:
    device, _, depths = _probe(state, key, limit)
    return device, 0, depths


def plant(patch: Patch) -> None:
    patch(matching, "probe", _device_only)
