"""Bugs in the records of requests: tables, windows and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hicache.core.errors import CoreBug
from hicache.core.eviction import tombstone
from hicache.core.radix.boundaries import is_there
from hicache.core.requests import checkpoints, tables, windows
from hicache.core.types import Tier, frozen

from .base import bug

_state_slots = tables.state_slots
_release_behind = windows.release_behind
_make_slot_room = checkpoints.make_slot_room
_note_decoded = checkpoints.note_decoded
_refill_checkpoint_slots = checkpoints.refill_checkpoint_slots


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


def _in_use(node: Any, index: int) -> bool:
    """Whether the core keeps the state of a node on a path that has too many."""
    locked = any(side[index] for side in node.locks)
    copied = any(leg.component == index for leg in node.legs)
    return locked or copied or len(node.children) > 1


def _limit_states(
    state: Any,
    path: list[Any],
    stays: Callable[[Any, int], bool] = _in_use,
    deepest_first: bool = False,
    more: int = 0,
) -> None:
    """stays: whether a state must stay. more: how many more are freed than the limit asks for."""
    for index, component in enumerate(state.components):
        holding = [node for node in path if is_there(node, index)] if component.per_path else []
        excess = len(holding) - component.per_path
        excess += more if excess > 0 else 0
        for node in holding[-2::-1] if deepest_first else holding[:-1]:
            if excess > 0 and not stays(node, index):
                excess -= 1
                for tier in (Tier.HOST, Tier.DEVICE):
                    if node.pages[tier][index] is not None:
                        tombstone(state, node, tier, index)


@bug(checkpoints, "choose_checkpoint_slots", kills="spec", components=("full", "mamba"))
def pass_stores_no_checkpoint_state(state: Any, request: Any, flight: Any, start: int) -> None:
    """A pass stores no state at the boundaries that it makes."""


@bug(checkpoints, "note_checkpoints", rows=("C13", "M7"), kills="bytes")
def wrong_checkpoint_slot_is_read(request: Any, flight: Any) -> None:
    """The state of a boundary is read from the other checkpoint slot."""
    for index, depth, slot in flight.checkpoints:
        request.checkpoint_tokens[index][2 - slot] = depth


@bug(checkpoints, "note_decoded", rows=("M6",), kills="lru")
def uncommitted_states_are_used(state: Any, request: Any, length: int) -> None:
    """States written by a step ahead of the committed tokens are used."""
    before = [list(depths) for depths in request.checkpoint_tokens]
    _note_decoded(state, request, length)
    for index, component in enumerate(state.components):
        if component.positional or request.computed_tokens < request.length:
            continue
        interval = component.interval
        depth = length // interval * interval - interval
        track = depth // interval % 2
        known = depth > request.length and request.tables[index][1 + track] >= 0
        request.checkpoint_tokens[index][track] = depth if known else before[index][track]


@bug(checkpoints, "owns_every_checkpoint_slot", rows=("E12",), components=("full", "swa", "mamba"))
def last_checkpoint_window_is_freed(state: Any, request: Any) -> bool:
    """The window before the last checkpoint is freed, the one before the end is kept."""
    return False


@bug(checkpoints, "make_slot_room", rows=("J7",))
def donation_requires_a_free_slot(state: Any, counts: list[int]) -> bool:
    """Donating a state fails with CoreBug while every other state is locked."""
    evicted = _make_slot_room(state, counts)
    for index, count in enumerate(counts):
        if not state.components[index].positional and state.pools[0][index].free < count:
            raise CoreBug("no slot for a state")
    return evicted


@bug(checkpoints, "refill_checkpoint_slots", kills="lru", components=("full", "mamba"))
def late_checkpoint_slot_counts_as_early(state: Any, request: Any, since: int) -> None:
    """A checkpoint slot taken during decode counts as if the request always had it."""
    before = request.refilled_at_tokens
    _refill_checkpoint_slots(state, request, since)
    request.refilled_at_tokens = before


@bug(checkpoints, "refill_checkpoint_slots", kills="spec", components=("full", "mamba"))
def one_checkpoint_slot_refilled_at_a_time(state: Any, request: Any, since: int) -> None:
    """Of the missing checkpoint slots, only the first is filled when slots are free."""
    before = list(request.tables)
    _refill_checkpoint_slots(state, request, since)
    for index, component in enumerate(state.components):
        if component.positional:
            continue
        slots = request.tables[index].copy()
        fresh = [at for at in range(len(slots)) if before[index][at] < 0 <= slots[at]]
        for at in fresh[1:]:
            state.pools[0][index].give_back(slots[at : at + 1].copy())
            slots[at] = -1
        request.tables[index] = frozen(slots)


@bug(checkpoints, "limit_states", kills="spec", components=("full", "mamba"))
def deepest_states_are_freed_first(state: Any, path: list[Any]) -> None:
    """Of too many states on a path, the deepest are freed first."""
    _limit_states(state, path, deepest_first=True)


@bug(checkpoints, "limit_states", kills="spec", components=("full", "mamba"))
def one_child_makes_a_fork(state: Any, path: list[Any]) -> None:
    """A state above the limit stays if its node has a child."""
    _limit_states(state, path, lambda node, at: _in_use(node, at) or bool(node.children))


@bug(checkpoints, "limit_states", components=("full", "mamba"))
def one_state_too_few_is_kept(state: Any, path: list[Any]) -> None:
    """A path with too many states loses one state too many."""
    _limit_states(state, path, more=1)


@bug(checkpoints, "limit_states", kills="spec")
def state_limit_per_path_is_ignored(state: Any, path: list[Any]) -> None:
    """A path keeps more states than the setting allows."""
    return


@bug(checkpoints, "limit_states", kills="spec", components=("full", "mamba"))
def states_below_locked_nodes_stay(state: Any, path: list[Any]) -> None:
    """A state above the limit stays while its node is locked for another component."""
    _limit_states(
        state, path, lambda node, index: _in_use(node, index) or any(map(any, node.locks))
    )
