"""Planted: see TITLE."""

from __future__ import annotations

from collections.abc import Sequence

from hicache.runtime import group
from hicache.runtime.group import Call, Values

from .base import Patch

ROWS: tuple[str, ...] = ("D4",)
TITLE = "The last rank takes part in every collective, but its values are ignored."
KILLS = ""
RANKS = 2

_combined = group.combined


def _of_all_but_one(calls: Sequence[Call]) -> Values:
    return _combined(calls[:-1])


def plant(patch: Patch) -> None:
    patch(group, "combined", _of_all_but_one)
