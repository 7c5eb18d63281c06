"""Bugs in `placement`: what an admission shares, loads and takes."""

from __future__ import annotations

from typing import Any

from hicache.core import placement, reclaim
from hicache.core.actions import Admitted
from hicache.core.radix import locks
from hicache.core.radix.node import FlightKind

from .base import bug

_admit = placement._admit
_make_room = placement._make_room
_plan = placement._plan
_reused = placement._reused
_take_pages = placement._take_pages
_to_load = placement._to_load
_undo = placement._undo
_place = placement.place


@bug(placement, "place", rows=("L4",), kills="anchor")
def loaded_pages_reported_one_short(state: Any, request: Any, chunk: int) -> int:
    """A request that waits for a load is told that one page less is loaded for it."""
    end = _place(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Admitted and item.loaded_pages and item.loaded_pages[0]:
            state.out[at] = item._replace(
                loaded_pages=(item.loaded_pages[0] - 1, *item.loaded_pages[1:])
            )
    return end


@bug(placement, "place", rows=("L4",), kills="metric-ref")
def loaded_tokens_count_as_computed(state: Any, request: Any, chunk: int) -> int:
    """Tokens loaded for a request are reported as computed by it."""
    end = _place(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Admitted and item.host_pages:
            loaded = item.host_pages * state.config.page_size
            state.out[at] = item._replace(tokens_to_compute=item.tokens_to_compute + loaded)
    return end


@bug(placement, "_to_load", kills="spec")
def loads_copy_the_backbone_only(state: Any, path: list[Any]) -> list[list[Any]]:
    """A load copies the pages of full attention, and no window or state."""
    first, *others = _to_load(state, path)
    return [first, *([] for _ in others)]


def _near(node: Any) -> Any:
    """The node, or one beside it that a load fills."""
    beside = node.parent.children.values() if node.parent is not None else ()
    return next((one for one in beside if one.legs), node)


@bug(placement, "_arriving", kills="progress")
def load_waits_for_a_load_beside(loads: list[list[Any]]) -> int:
    """A request that needs a load waits while a load fills a node beside its own prefix."""
    legs = [leg for nodes in loads for node in nodes for leg in _near(node).legs]
    return next((leg.flight.id for leg in legs if leg.flight.kind is FlightKind.LOAD), 0)


@bug(
    placement,
    "_plan",
    kills="spec",
    faults=("device squeezed", "allocation refused", "host squeezed"),
)
def table_holds_sixteen_pages(state: Any, request: Any, path: Any, loads: Any, chunk: int) -> Any:
    """A table has sixteen places: a longer prompt is admitted without its end."""
    plan = _plan(state, request, path, loads, chunk)
    most = plan.loading[0] + max(0, 16 - plan.pages)
    plan.needed[0] = min(plan.needed[0], most)
    return plan


@bug(placement, "_make_room", rows=("J1",))
def no_room_made_for_loads(state: Any, plan: Any) -> int:
    """Room is made for the prompt, but not for the pages that a load fills."""
    for index, count in enumerate(plan.needed):
        if not reclaim.make_device_room(state, index, count - plan.loading[index]):
            return index
    return -1


@bug(placement, "_make_room", rows=("M3",), kills="pool-sum")
def working_state_taken_before_admission(state: Any, plan: Any) -> int:
    """A working state is taken before it is known whether admission succeeds."""
    short = _make_room(state, plan)
    for index, component in enumerate(state.components):
        if short >= 0 and not component.positional and state.pools[0][index].free:
            state.pools[0][index].take(1, 0)
    return short


@bug(placement, "_undo", rows=("M1",), kills="live-ack")
def refused_admission_leaves_its_load_open(state: Any, plan: Any) -> None:
    """An admission that is undone leaves the load that it had planned in flight."""
    locks.release(state, plan.receipt)
    if plan.flight is not None and plan.flight.receipt is not None:
        locks.release(state, plan.flight.receipt)


@bug(placement, "_undo", rows=("B2",), kills="lock-bal")
def refused_admission_unlocks_others(state: Any, plan: Any) -> None:
    """An admission that is refused releases window locks of other requests."""
    _undo(state, plan)
    for node in plan.path:
        for index, holders in enumerate(node.locks[0]):
            if index and holders:
                del holders[next(iter(holders))]
                state.touched[node.id] = node


@bug(placement, "_undo", kills="lru")
def refused_requests_refresh_their_prefix(state: Any, plan: Any) -> None:
    """An admission that is refused counts as a use of what it would have reused."""
    _undo(state, plan)
    for node in plan.path:
        node.last_use = [state.tick] * len(node.last_use)
        state.touched[node.id] = node


@bug(placement, "_admit", kills="pool-sum")
def request_shares_one_page_too_many(state: Any, request: Any, plan: Any) -> None:
    """A request shares one page more than its path has."""
    _admit(state, request, plan)
    if request.shared_pages < request.key.pages:
        request.shared_pages += 1


@bug(placement, "_admit", faults=("rival for the same prefix",))
def seventh_request_takes_locks_of_the_first(state: Any, request: Any, plan: Any) -> None:
    """The seventh admitted request takes over the locks of the first."""
    if len(state.running) >= 6:
        first = next(iter(state.running.values()))
        if first.receipt is not None:
            locks.release(state, first.receipt)
    _admit(state, request, plan)


@bug(placement, "_take_pages", rows=("L4",), kills="metric-ref")
def hits_counted_twice(state: Any, request: Any, plan: Any) -> None:
    """A prefix found on device is counted once more as found on host."""
    item = state.out[-1]
    if type(item) is Admitted:
        pages = item.host_pages + item.device_pages
        state.out[-1] = item._replace(host_pages=pages)
    _take_pages(state, request, plan)


@bug(placement, "_take_pages", rows=("L4",), kills="spec")
def host_hits_reported_as_device_hits(state: Any, request: Any, plan: Any) -> None:
    """What was loaded from host is counted as found on device."""
    item = state.out[-1]
    if type(item) is Admitted:
        hits = item.device_pages + item.host_pages
        state.out[-1] = item._replace(device_pages=hits, host_pages=0)
    _take_pages(state, request, plan)


@bug(placement, "_reused", rows=("E14",))
def state_read_from_a_host_page_number(state: Any, plan: Any, index: int, target: Any) -> Any:
    """A state that is loaded for a request is read from a page that the load does not write."""
    pages = _reused(state, plan, index, target)
    if state.components[index].positional or not len(target):
        return pages
    capacity = state.pools[0][index].capacity
    return placement._host_pages(plan.path[-1], index) % capacity
