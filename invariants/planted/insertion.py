"""Bugs in `insertion`: what a request computed is put into the tree."""

from __future__ import annotations

from typing import Any

from hicache.core import insertion
from hicache.core.ledger import Pool
from hicache.core.radix.tree import nodes_below
from hicache.core.requests import windows
from hicache.core.types import Tier

from .base import Patch, bug

_donate = insertion._donate
_give_back_at = insertion._give_back_at
_grow = insertion._grow
_share = insertion._share
_insert = insertion.insert
_use = insertion.use


@bug(insertion, "insert", kills="spec")
def failed_write_backs_are_not_tried_again(state: Any, *args: Any, **named: Any) -> list[Any]:
    """What could not be written back is not tried again after the next use."""
    before = {node.id: node.host_refused for node in nodes_below(state.root)}
    path = _insert(state, *args, **named)
    for node in path:
        node.host_refused = before.get(node.id, 0)
    return path


@bug(insertion, "use", rows=("K1",), kills="spec")
def hit_is_not_a_use(state: Any, request: Any, path: list[Any], made: Any = ()) -> None:
    """Admission on cached pages does not count as a use of them."""
    before = [node.last_use.copy() for node in path]
    _use(state, request, path, made)
    if not made:
        for node, last in zip(path, before, strict=True):
            node.last_use[:] = last


@bug(insertion, "use", rows=("K2",), kills="spec")
def hit_refreshes_every_state_on_the_path(
    state: Any, request: Any, path: list[Any], made: Any = ()
) -> None:
    """A hit refreshes every state on its path, not only the one that it copies."""
    _use(state, request, path, made)
    for node in path:
        for index, component in enumerate(state.components):
            if not component.positional:
                node.last_use[index] = state.tick


@bug(insertion, "use", rows=("K1",), kills="spec")
def hit_refreshes_every_window_on_the_path(
    state: Any, request: Any, path: list[Any], made: Any = ()
) -> None:
    """A hit refreshes the windows of the whole path, not only the one that it uses."""
    _use(state, request, path, made)
    for node in path:
        for index, component in enumerate(state.components):
            if index and component.positional:
                node.last_use[index] = state.tick


@bug(insertion, "_has_windows", rows=("E9",), kills="spec")
def insert_accepts_window_with_a_gap(state: Any, request: Any, pages: int) -> bool:
    """A boundary is made where the window of the request has a gap."""
    return True


@bug(insertion, "_has_windows", rows=("F4",), kills="spec")
def tombstone_above_the_window_blocks_a_boundary(state: Any, request: Any, pages: int) -> bool:
    """A boundary is left out because a page far above its window is a tombstone."""
    return all(
        index == 0 or not component.positional or bool((request.tables[index][:pages] >= 0).all())
        for index, component in enumerate(state.components)
    )


@bug(insertion, "_give_back_at")
def freed_pages_stay_in_the_table(state: Any, request: Any, index: int, gaps: list[slice]) -> None:
    """Pages that no boundary requires are freed, and stay in the table of their request."""
    table = request.tables[index]
    for gap in gaps:
        own = table[gap]
        state.pools[Tier.DEVICE][index].give_back(own[own >= 0])


@bug(insertion, "_give_back_at", rows=("E13",), kills="own-d")
def inserted_window_is_one_page_short(state: Any, request: Any, index: int, gaps: Any) -> None:
    """The window that an insert keeps is one page short."""
    _give_back_at(state, request, index, [slice(gap.start, gap.stop + 1) for gap in gaps])


@bug(kills="own-d")
def pages_behind_the_window_leak(patch: Patch) -> None:
    """Pages that a window has passed are removed from the table and never freed."""

    def forget(state: Any, request: Any, index: int, gaps: Any) -> None:
        del state
        table = request.tables[index].copy()
        for gap in gaps:
            table[gap] = -1
        table.flags.writeable = False
        request.tables[index] = table

    def clear(state: Any, request: Any, index: int, first: int) -> None:
        request.cleared_pages[index] = first
        forget(state, request, index, [slice(0, first)])

    patch(insertion, "_give_back_at", forget)
    patch(windows, "_clear", clear)


@bug(insertion, "_share", rows=("A16",), kills="own-d")
def adopted_pages_are_freed(state: Any, request: Any, path: Any) -> None:
    """Pages that a node has just adopted are freed by the request that had computed them."""
    behind = [
        node for node in path if node.end_page > request.shared_pages and node.pages[0][0] is None
    ]
    _share(state, request, path)
    for node in behind:
        state.pools[0][0].give_back(node.pages[0][0])


@bug(insertion, "_share", rows=("A6",), kills="own-d")
def duplicate_pages_leak(state: Any, request: Any, path: Any) -> None:
    """Pages that a repeated prompt has computed again are neither adopted nor freed."""

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


@bug(insertion, "_grow", rows=("G9",), kills="spec")
def chunk_insertions_count_no_use(
    state: Any, request: Any, path: list[Any], key: Any, upto: int, made: Any
) -> None:
    """Nodes inserted by a prompt chunk count no use, so long prompts are never backed up."""
    before = len(path)
    _grow(state, request, path, key, upto, made)
    for node in path[before:]:
        node.hits = 0


@bug(insertion, "_donate", rows=("M4",), kills="own-d")
def donated_slot_stays_with_its_request(
    state: Any, request: Any, path: list[Any], made: Any
) -> None:
    """A request keeps the slot of a state that it has donated to a node."""
    tables = list(request.tables)
    _donate(state, request, path, made)
    request.tables[:] = tables
