"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core.config import Config
from hicache.runtime import agreement
from hicache.runtime.group import Group, Turn

from .base import Patch

ROWS: tuple[str, ...] = ("D9",)
TITLE = "Each rank has as many pages as fit into its own memory."
KILLS = ""
RANKS = 2


def _own(config: Config, group: Group) -> Turn[Config]:
    yield from ()
    return config


def plant(patch: Patch) -> None:
    patch(agreement, "agree_on_settings", _own)
