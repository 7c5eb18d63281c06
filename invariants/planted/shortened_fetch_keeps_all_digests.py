"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.storage import prefetch

from .base import Patch

ROWS = ("H2",)
TITLE = "A fetch that has room for fewer pages than were found keeps the digests of all of them."
KILLS = "len-eq"
COMPONENTS = ("full",)


def plant(patch: Patch) -> None:
    begin, make = prefetch._begin_fetch, prefetch._fetch_action
    found: list[tuple[bytes, ...]] = []

    def _begun(state: Any, lookup: Any) -> Any:
        found.append(lookup.digests[: lookup.found_pages])
        return begin(state, lookup)

    def _longer(state: Any, flight: Any) -> Any:
        action = make(state, flight)
        more = found[-1][len(flight.digests) :]
        last = action.pieces[-1]
        whole = last._replace(digests=(*last.digests, *more))
        return action._replace(pieces=(*action.pieces[:-1], whole))

    patch(prefetch, "_begin_fetch", _begun)
    patch(prefetch, "_fetch_action", _longer)
