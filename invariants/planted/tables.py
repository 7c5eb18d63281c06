"""Bugs in the tables of a request, and in what lies behind its windows."""

from __future__ import annotations

from typing import Any

from hicache.core.requests import tables, windows
from hicache.core.types import Tier

from .base import bug

_state_slots = tables.state_slots
_release_behind = windows.release_behind


@bug(tables, "own_pages", rows=("A12",))
def empty_slot_sentinel_is_freed(state: Any, request: Any, index: int) -> Any:
    """The -1 of an empty slot is given back like a page."""
    pages = request.tables[index]
    return pages[request.shared_pages :] if state.components[index].positional else pages


@bug(tables, "state_slots", rows=("M3",))
def mamba_state_is_used_in_place(state: Any, request: Any, flight: Any = None) -> Any:
    """The working state of a request is the slot of the cached state, not a copy of it."""
    return tuple(
        one._replace(working=one.source) if one.source >= 0 else one
        for one in _state_slots(state, request, flight)
    )


@bug(tables, "state_slots", rows=("M7",), kills="bytes")
def working_state_not_copied_on_use(state: Any, request: Any, flight: Any = None) -> Any:
    """A pass that reuses a prefix starts from whatever its working slot held."""
    return tuple(one._replace(source=-1) for one in _state_slots(state, request, flight))


@bug(windows, "release_behind", rows=("C8",), kills="lock-bal")
def window_freed_too_early(state: Any, request: Any, computed: int, exactly: bool = False) -> None:
    """Pages of a window are freed while the request still attends to them."""
    _release_behind(state, request, computed + state.config.page_size, exactly)


@bug(windows, "_clear", kills="generation")
def tables_are_rewritten_in_place(state: Any, request: Any, index: int, first: int) -> None:
    """Pages behind a window are removed from the very table that was handed out."""
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    table = request.tables[index]
    own = table[max(since, request.shared_pages) : first].copy()
    state.pools[Tier.DEVICE][index].give_back(own[own >= 0])
    table.flags.writeable = True
    table[since:first] = -1
    table.flags.writeable = False


@bug(windows, "_clear", rows=("A1",), kills="spec")
def window_pages_freed_twice(state: Any, request: Any, index: int, first: int) -> None:
    """Pages behind a window are freed, stay in the table and are freed again with the request."""
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    own = request.tables[index][max(since, request.shared_pages) : first]
    state.pools[Tier.DEVICE][index].give_back(own[own >= 0])


@bug(windows, "_cut_locked", kills="spec")
def locked_window_is_never_cut(state: Any, receipt: Any, index: int, at: int) -> None:
    """A request that needs pages keeps whole nodes locked of which its window passed a part."""
