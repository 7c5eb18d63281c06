"""Pages that are taken as a request goes on, and given back behind it.

The backbone's pages are taken for the whole prompt when a request is admitted. Those of a bounded
component are taken for each chunk or growth, because most of a long prompt is outside its window:

    t    pages computed                      d    the deepest boundary that is still to be made
    lo   = min(t, d) - window                own pages and locks before lo serve nothing any more
"""

from __future__ import annotations

from .checkpoints import owns_every_checkpoint_slot
from .radix.locks import unlock_above
from .radix.node import Receipt, Request
from .radix.tree import split, start_of
from .state import State
from .types import Tier, frozen


def pages_of(state: State, tokens: int) -> int:
    return -(-tokens // state.config.page_size)


def reachable_end(state: State, request: Request, index: int, start: int, end: int) -> int:
    """How far a pass from token `start` to `end` gets with the pages of a bounded component that
    can be had; at most `start` where it cannot even begin."""
    room = state.pools[Tier.DEVICE][index].available
    return min(end, (request.filled_pages + room) * state.config.page_size)


def fill(state: State, request: Request, upto: int) -> None:
    """Take the pages of bounded components at the positions up to `upto`. There is room."""
    for index in state.bounded:
        count = upto - request.filled_pages
        if count > 0:
            table = request.tables[index].copy()
            table[request.filled_pages : upto] = state.pools[Tier.DEVICE][index].take(
                count, request.id
            )
            request.tables[index] = frozen(table)
    request.filled_pages = max(request.filled_pages, upto)


def release_behind(state: State, request: Request, computed: int, exactly: bool = False) -> None:
    """Give back, and unlock, what the tokens behind the first `computed` cannot reach.

    Locks end node by node; with `exactly`, for a pool that is short, nodes are cut for it.
    """
    if state.every_end_is_live or request.receipt is None:
        return
    interval, size = state.interval, state.config.page_size
    low = computed // size
    boundary = computed // interval * interval // size
    if boundary > request.shared_pages and owns_every_checkpoint_slot(state, request):
        low = boundary
    for index in state.bounded:
        first = max(low - state.components[index].window_pages, request.cleared_pages[index])
        if first <= 0:
            continue
        if exactly:
            _cut_locked(state, request.receipt, index, first)
        unlock_above(state, request.receipt, index, first)
        if first > request.cleared_pages[index]:
            _clear(state, request, index, first)


def _clear(state: State, request: Request, index: int, first: int) -> None:
    """No pages of the component at the leading `first` positions any more: its own go back."""
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    table = request.tables[index].copy()
    own = table[max(since, request.shared_pages) : first]
    state.pools[Tier.DEVICE][index].give_back(own[own >= 0])
    table[since:first] = -1
    request.tables[index] = frozen(table)


def _cut_locked(state: State, receipt: Receipt, index: int, at: int) -> None:
    for node, _ in receipt.locked[index]:
        start = start_of(node, state.stride)
        if start < at < node.end_page:
            split(state, node, at - start)
            return
