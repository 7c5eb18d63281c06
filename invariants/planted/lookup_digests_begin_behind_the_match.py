"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core.actions import Lookup
from hicache.core.storage import prefetch
from hicache.core.types import chain_digests, root_digest

from .base import Patch

ROWS = ("H17",)
TITLE = "The digests of a lookup are chained from the page where it begins."
KILLS = "key-rt"

_begin_prefetch = prefetch.begin_prefetch


def _from_the_match(state: Any, request: Any, again: bool = False) -> None:
    told = len(state.out)
    _begin_prefetch(state, request, again)
    for at in range(told, len(state.out)):
        item = state.out[at]
        if type(item) is Lookup and item.first_page:
            key, first = request.key, item.first_page
            rows = key.raw[first * key.stride : (first + len(item.digests)) * key.stride]
            digests = tuple(chain_digests(root_digest(key.namespace), rows, key.stride))
            state.flights[item.flight].digests = digests
            state.out[at] = item._replace(digests=digests)


def plant(patch: Patch) -> None:
    patch(prefetch, "begin_prefetch", _from_the_match)
