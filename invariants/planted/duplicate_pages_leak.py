"""Planted in `insertion._share`: the request's own pages are not freed."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion
from hicache.core.ledger import Pool

from .base import Patch

ROWS: tuple[str, ...] = ("A6",)
TITLE = "Pages that a repeated prompt has computed again are neither adopted nor freed."
KILLS = "own-d"

_share = insertion._share


def _leak(state: Any, request: Any, path: Any) -> None:
    class Deaf(Pool):
        __slots__ = ()

        def give_back(self, pages: Any) -> None:
            """Frees nothing."""

    pools = state.pools[0]
    for pool in pools:
        pool.__class__ = Deaf
    try:
        _share(state, request, path)
    finally:
        for pool in pools:
            pool.__class__ = Pool


def plant(patch: Patch) -> None:
    patch(insertion, "_share", _leak)
