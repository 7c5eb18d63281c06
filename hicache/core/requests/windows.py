"""Pages of bounded components: taken as a request goes on, and freed once its window has passed.

The backbone's pages are taken for the whole prompt when a request is admitted. Those of a bounded
component are taken for each chunk or growth, because most of a long prompt is outside its window:

    t    pages computed                      d    the deepest boundary that is still to be made
    lo   = min(t, d) - window                own pages and locks before lo are not needed any more

Does not write tables; see `tables`.
"""

from __future__ import annotations

from ..errors import CoreBug
from ..radix.locks import unlock_above
from ..radix.node import Receipt
from ..radix.tree import split, start_of
from ..state import State
from ..types import DEVICE
from .checkpoints import owns_every_checkpoint_slot
from .record import Request
from .tables import strike, write


def pages_of(state: State, tokens: int) -> int:
    return -(-tokens // state.config.page_size)


def reachable_end(state: State, request: Request, index: int, end: int) -> int:
    """The token up to which a pass that should end at token `end` has pages of a bounded
    component."""
    room = state.pools[DEVICE][index].available
    return min(end, (request.filled_pages + room) * state.config.page_size)


def fill(state: State, request: Request, upto: int) -> None:
    """Take the pages of bounded components for the positions up to page `upto`. They must be
    free."""
    first = request.filled_pages
    if upto <= first:
        return
    for index in state.bounded:
        pages = state.pools[DEVICE][index].take(upto - first, request.id)
        write(request, index, [(first, pages)])
    request.filled_pages = upto


def release_behind(state: State, request: Request, computed: int, exactly: bool = False) -> None:
    """Free and unlock pages of bounded components that no token after the first `computed` reads.

    A lock ends only when the whole node can be unlocked. With `exactly`, used when a pool is short
    of pages, nodes are split so that the lock covers no more than the window.
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
    """Free the request's own pages of the component at the first `first` positions."""
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    if not since < first <= request.filled_pages:
        raise CoreBug(
            f"request {request.id} gives back pages {since}..{first} of component {index}"
        )
    own = request.tables[index][max(since, request.shared_pages) : first]
    state.pools[DEVICE][index].give_back(own[own >= 0])
    strike(request, index, [slice(since, first)])


def _cut_locked(state: State, receipt: Receipt, index: int, at: int) -> None:
    for node, _ in receipt.locked[index]:
        start = start_of(node, state.stride)
        if start < at < node.end_page:
            split(state, node, at - start)
            return
