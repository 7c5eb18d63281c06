"""Planted in `backup.missing_on_host`: it does not see the backups in flight."""

from __future__ import annotations

from typing import Any

from hicache.core import backup

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = (
    "A use of pages whose backup is in flight begins a second one, whose copies are thrown away."
)
KILLS = "copy-once"

_missing_on_host = backup.missing_on_host


def _again(state: Any, node: Any) -> list[int]:
    legs, node.legs = node.legs, []
    try:
        return _missing_on_host(state, node)
    finally:
        node.legs = legs


def plant(patch: Patch) -> None:
    patch(backup, "missing_on_host", _again)
