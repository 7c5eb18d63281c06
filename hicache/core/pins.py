"""Retention: pinned prefixes, such as a system prompt, and copies that expire.

A pin locks what is cached of its prefix on its tier, with a receipt like that of a request: the
backbone from the root down to the deepest boundary within the prefix, and what that boundary
requires of the other components. When more of the prefix comes to the tier, it locks that too, at
the end of the same event. A flush forgets the pages, and the pin stays. The bound counts whole
prefixes when they are pinned, so a pin that was taken can never be too much later.

`TimePassed` ends a period, and the core remembers its tick at the end of the last periods. The
backbone of a node is used whenever a node below it is, so what has expired is a set of whole
branches; it goes from the leaves up. Nodes are filed once, by a tick that is not after their last
use, so a period costs what it deletes and what was used since it was filed.
"""

from heapq import heappop, heappush

from .actions import Pinned, PinRefused, Unpinned
from .errors import CallerError
from .events import PinWanted, TimePassed, UnpinWanted
from .eviction import delete, delete_dead
from .node import Node, Pin, Request, is_locked
from .refusals import check_integer, check_key, check_stride
from .state import State
from .transfers import lock, lock_required, open_receipt, release, required
from .tree import anchors, cut_windows, deepest_on, path_to, split, walk
from .types import BACKBONE, DEVICE, HOST


def want_pin(state: State, event: PinWanted) -> None:
    """Pin a prefix, if the bound allows it."""
    check_integer("pin", event.pin)
    if event.pin < 0 or event.pin in state.pins:
        raise CallerError(f"pin {event.pin}: expected a new number from 0 up")
    check_key(event.key)
    check_stride(state, event.key)
    if event.tier not in (DEVICE, HOST) or not event.key.pages:
        raise CallerError(
            f"pin {event.pin}: expected at least one page on device or host, found "
            f"{event.key.pages} on {event.tier!r}"
        )
    config = state.config
    bound = config.pin_host_pages if event.tier == HOST else config.pin_pages
    others = [pin for pin in state.pins.values() if pin.tier == event.tier]
    for index, component in enumerate(state.components):
        taken = sum(_needed(state, pin.key.pages, index) for pin in others)
        left = (bound[index] if bound else 0) - taken
        needed = _needed(state, event.key.pages, index)
        if needed > left:
            state.out.append(PinRefused(event.pin, component.name, needed, left))
            return
    state.stride = event.key.stride
    pin = Pin(event.pin, event.key, event.tier, open_receipt(state, f"pin {event.pin}"))
    state.pins[pin.id] = pin
    _hold(state, pin)
    state.out.append(Pinned(pin.id, pin.held_pages))


def want_unpin(state: State, event: UnpinWanted) -> None:
    """Give up a pin."""
    pin = state.pins.get(event.pin) if isinstance(event.pin, int) else None
    if pin is None:
        raise CallerError(f"pin {event.pin}: expected a pinned prefix, found none")
    del state.pins[pin.id]
    release(state, pin.receipt)
    state.out.append(Unpinned(pin.id, pin.held_pages))


def hold_pinned(state: State, tier: int) -> None:
    """Copies may have come to the tier: pins take hold of what they lack."""
    for pin in state.pins.values():
        if pin.tier == tier and pin.held_pages < pin.key.pages:
            _hold(state, pin)


def release_flushed(state: State) -> None:
    """The tree was flushed: nothing is held any more."""
    for pin in state.pins.values():
        pin.held_pages = 0
        for entries in pin.receipt.locked:
            entries.clear()


def pinned_beside(state: State, request: Request) -> int:
    """Pages of the backbone on device that pins hold and that are new to the request: those
    beside the prefix that it locks, or while it waits, beside the prefix that it could reuse
    without a load. That ends at a boundary of every component."""
    nodes: dict[int, Node] = {}
    for pin in state.pins.values():
        if pin.tier == DEVICE:
            nodes |= {node.id: node for node, _ in pin.receipt.locked[BACKBONE]}
    if not nodes:
        return 0
    pages = sum(len(node.key) for node in nodes.values()) // state.stride
    if request.admitted:
        shared = path_to(request.shared_node) if request.shared_node is not None else []
        return pages - sum(len(node.key) for node in shared if node.id in nodes) // state.stride
    path, partial, part = walk(state, request.key, request.match_pages, request.known_node)
    if partial is not None:
        path.append(partial)
    device = anchors(state, path, part)[0]
    if partial is not None and device == len(path):
        pages -= part if partial.id in nodes else 0
        device -= 1
    return pages - sum(len(node.key) for node in path[:device] if node.id in nodes) // state.stride


def _needed(state: State, pages: int, index: int) -> int:
    """How many pages of a component a prefix may require, at most."""
    component = state.components[index]
    return min(pages, component.window_pages) if component.positional else 1


def _hold(state: State, pin: Pin) -> None:
    """Lock what is there of the prefix. A node is split only where the lock ends."""
    path, partial, part = walk(state, pin.key, pin.key.pages)
    known = path if partial is None else [*path, partial]
    if pin.tier == DEVICE:
        upto = anchors(state, known, part)[0]
    else:
        upto = deepest_on(state, known, HOST, part)
    if partial is not None and upto == len(known):
        path.append(split(state, partial, part))
    path = path[:upto]
    if not path or path[-1].end_page <= pin.held_pages:
        return
    cut_windows(state, path)
    if pin.tier == DEVICE:
        lock_required(state, pin.receipt, path)
    else:
        _lock_on_host(state, pin, path)
    pin.held_pages = path[-1].end_page


def _lock_on_host(state: State, pin: Pin, path: list[Node]) -> None:
    """Lock what the path's end requires on host, and release what only the boundary before did."""
    fresh = open_receipt(state, pin.receipt.name)
    for index, component in enumerate(state.components):
        lock(state, fresh, required(path, component.window_pages), HOST, index)
    release(state, pin.receipt)
    pin.receipt = fresh


def time_passed(state: State, event: TimePassed) -> None:
    """Delete what was not used for the configured number of periods and is not in use."""
    periods = state.config.ttl_periods
    if not periods:
        raise CallerError("time passed: expected a core with ttl_periods, found 0 periods")
    state.period_ticks.append(state.tick)
    if len(state.period_ticks) <= periods:
        return
    for node in sorted(
        _due(state, state.period_ticks.pop(0)), key=lambda node: (-node.end_page, node.id)
    ):
        if node.children or node.segments or is_locked(node):
            heappush(state.unused, (node.last_use[BACKBONE], node.id, node))
        else:
            delete(state, node)
    delete_dead(state)


def _due(state: State, tick: int) -> list[Node]:
    """Take the nodes out of the heap that were not used after this tick."""
    nodes, unused = [], state.unused
    while unused and unused[0][0] <= tick:
        node = heappop(unused)[2]
        if node.parent is None:
            continue
        if node.last_use[BACKBONE] <= tick:
            nodes.append(node)
        else:
            heappush(unused, (node.last_use[BACKBONE], node.id, node))
    return nodes
