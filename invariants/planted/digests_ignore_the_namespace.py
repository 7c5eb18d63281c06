"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core import types

from .base import Patch

ROWS = ("H8",)
TITLE = "Pages of two namespaces have the same digests."
KILLS = "key-inj"

_root_digest = types.root_digest


def _same_for_all(namespace: str) -> bytes:
    return _root_digest("")


def plant(patch: Patch) -> None:
    patch(types, "root_digest", _same_for_all)
