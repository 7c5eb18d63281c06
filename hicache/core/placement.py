"""Admission of a request: what it reuses, what is loaded for it, and the pages it starts with.

An admission succeeds as a whole or is refused. The order of the steps matters, because taking pages
may evict pages that the decision depends on:

    match -> decide what to load -> lock -> make room -> admit the request -> take pages

If there is no room for the load, the request starts from the device anchor instead. A refusal
releases the locks. Splits, evictions and copies to host that were begun for it remain.

Does not handle events, see `admission`, or choose victims, see `reclaim`.
"""

from __future__ import annotations

import numpy as np

from .actions import Admitted
from .errors import CoreBug
from .flights import close_flight, open_flight
from .insertion import use
from .radix.locks import lock_required, open_receipt, release, required
from .radix.marks import visit
from .radix.matching import anchors, cut_windows, match
from .radix.node import Flight, FlightKind, Node, Receipt
from .reclaim import make_device_room
from .refusals import refuse, refuse_room
from .requests.record import Request
from .requests.tables import filled, joined
from .requests.windows import fill, pages_of
from .state import State
from .transfers import begin_load, lock_for_load
from .types import BACKBONE, DEVICE, HOST, NO_PAGES, FlightId, Pages


class Plan:
    """An admission that is being decided. It has its locks, but has taken no pages yet.

    path: the nodes that are reused. pages: how many these have. loads: by component, the nodes of
    the path to load. loading: by component, their pages. needed: by component, device pages to
    take, including those for loads. end_token: where the first pass ends. short: the component
    whose pool has too few pages, or -1.
    """

    __slots__ = (
        "end_token",
        "flight",
        "loading",
        "loads",
        "needed",
        "pages",
        "path",
        "receipt",
        "short",
    )

    def __init__(
        self,
        path: list[Node],
        loads: list[list[Node]],
        loading: tuple[int, ...],
        receipt: Receipt,
        flight: Flight | None,
    ) -> None:
        self.path = path
        self.pages = path[-1].end_page if path else 0
        self.loads = loads
        self.loading = loading
        self.receipt = receipt
        self.flight = flight
        self.needed = list(loading)
        self.end_token = 0
        self.short = -1


def place(state: State, request: Request, chunk: int) -> int:
    """Admit a waiting request. Returns the token at which its first pass ends, or 0 if the request
    was refused and still waits."""
    if request.admitted or request.load or request.passes:
        raise CoreBug(f"request {request.id} is admitted already")
    known = match(state, request.key, request.match_pages, request.known_node)
    request.known_node = known[-1] if known else None
    found = anchors(state, known)
    ends = [0, *[node.end_page for node in known]]
    on_device = ends[found.device]
    path = known[: found.best]
    if not _worth_loading(state, request, ends[found.best] - on_device):
        path = known[: found.device]
    cut_windows(state, path)
    loads = _to_load(state, path)
    arriving = _arriving(loads)
    if arriving:
        total = pages_of(state, request.length)
        free = state.pools[DEVICE][BACKBONE].free
        refuse(state, request.id, "arriving", total, free, after=arriving)
        return 0
    plan = _plan(state, request, path, loads, chunk)
    if plan.short >= 0 and any(loads):
        _undo(state, plan)
        path = match(state, request.key, request.match_pages, request.known_node)
        path = path[: anchors(state, path).device]
        cut_windows(state, path)
        plan = _plan(state, request, path, _to_load(state, path), chunk)
    if plan.short < 0:
        plan.short = _make_room(state, plan)
    if plan.short >= 0:
        refuse_room(state, request.id, plan.short, plan.needed[plan.short])
        _undo(state, plan)
        return 0
    request.branch_pages = ends[-1]
    _admit(state, request, plan)
    reused = min(on_device, plan.pages)
    depths = tuple([ends[depth] for depth in found.depths])
    state.out.append(
        Admitted(
            request=request.id,
            device_pages=reused,
            host_pages=plan.pages - reused,
            tokens_to_compute=request.length - request.computed_tokens,
            depths=depths,
            loaded_pages=plan.loading,
            matched_pages=request.branch_pages,
        )
    )
    _take_pages(state, request, plan)
    return plan.end_token


def _worth_loading(state: State, request: Request, pages: int) -> bool:
    """Whether to load. pages: how many more pages can be reused with the load."""
    config = state.config
    allowed = not config.load_quota_pages or pages <= config.load_quota_pages
    return request.may_load and allowed and pages >= max(1, config.load_threshold_pages)


def _to_load(state: State, path: list[Node]) -> list[list[Node]]:
    """By component, the nodes that the path's end requires and that are not on device."""
    return [
        [
            node
            for node in required(path, component.window_pages)
            if node.pages[DEVICE][index] is None
        ]
        for index, component in enumerate(state.components)
    ]


def _arriving(loads: list[list[Node]]) -> FlightId:
    """The load in flight that already brings one of these nodes; 0 if none does."""
    for index, nodes in enumerate(loads):
        for node in nodes:
            for leg in node.legs:
                if leg.component == index and leg.flight.kind is FlightKind.LOAD:
                    return leg.flight.id
    return 0


def _plan(
    state: State, request: Request, path: list[Node], loads: list[list[Node]], chunk: int
) -> Plan:
    """Lock what is reused, then count the pages to take and check that the pools can give them."""
    receipt = open_receipt(state, f"request {request.id}")
    lock_required(state, receipt, path)
    flight = None
    if any(loads):
        flight = open_flight(state, FlightKind.LOAD, request.id)
        lock_for_load(state, flight, path, loads)
    loading = tuple([_count_host_pages(nodes, index) for index, nodes in enumerate(loads)])
    plan = Plan(path, loads, loading, receipt, flight)
    size, start = state.config.page_size, plan.pages * state.config.page_size
    pools = state.pools[DEVICE]
    rooms = [pool.available - loading[index] for index, pool in enumerate(pools)]
    plan.end_token = min(start + chunk, request.length)
    for index in state.bounded:
        plan.end_token = min(plan.end_token, max(start, start + rooms[index] * size))
    fresh = max(0, pages_of(state, plan.end_token) - plan.pages)
    for index, component in enumerate(state.components):
        if not component.positional:
            count = max(component.least_slots, min(component.slots, rooms[index]))
        elif index == BACKBONE:
            count = pages_of(state, request.length) - plan.pages
        else:
            count = fresh if fresh or start >= request.length else 1
        plan.needed[index] += max(0, count)
        if plan.short < 0 and max(0, count) > rooms[index]:
            plan.short = index
    return plan


def _make_room(state: State, plan: Plan) -> int:
    """Evict until the needed pages are free. Returns the first component for which they are not, or
    -1."""
    for index, count in enumerate(plan.needed):
        if not make_device_room(state, index, count):
            return index
    return -1


def _undo(state: State, plan: Plan) -> None:
    release(state, plan.receipt)
    if plan.flight is not None:
        close_flight(state, plan.flight)


def _admit(state: State, request: Request, plan: Plan) -> None:
    request.receipt, request.admitted = plan.receipt, True
    request.shared_pages = request.filled_pages = plan.pages
    request.shared_node = plan.path[-1] if plan.path else None
    request.computed_tokens = min(request.length, plan.pages * state.config.page_size)
    request.digests, request.known_node = (), None
    state.running[request.id] = request
    state.touched_requests[request.id] = None
    use(state, request, plan.path)
    if state.marked and plan.path:
        visit(state, plan.path, (plan.pages,))
    for node in plan.path:
        node.hits += 1


def _take_pages(state: State, request: Request, plan: Plan) -> None:
    total = max(pages_of(state, request.length), plan.pages)
    count = len(state.components)
    targets = [NO_PAGES] * count
    request.tables, request.checkpoint_tokens = [], []
    request.cleared_pages, request.sources = [0] * count, [-1] * count
    for index, component in enumerate(state.components):
        pool, flight, loading = state.pools[DEVICE][index], plan.flight, plan.loading[index]
        if flight is not None and loading:
            targets[index] = pool.reserve(loading, flight.id)
        reused = _reused(state, plan, index, targets[index])
        request.checkpoint_tokens.append([0] * max(0, component.slots - 1))
        if not component.positional:
            slots = pool.take(plan.needed[index] - loading, request.id)
            table = filled(component.slots, 0, slots)
            request.sources[index] = int(reused[-1]) if len(reused) else -1
        elif index == BACKBONE:
            table = joined(reused, pool.take(plan.needed[index] - loading, request.id))
        else:
            table = filled(total, plan.pages - len(reused), reused)
        if component.positional and len(table) != total:
            raise CoreBug(f"request {request.id}: a table of {len(table)} for {total} pages")
        request.tables.append(table)
    fill(state, request, pages_of(state, plan.end_token))
    if plan.flight is not None:
        begin_load(state, request, plan.flight, plan.loads, targets)


def _reused(state: State, plan: Plan, index: int, target: Pages) -> Pages:
    """The device pages of the nodes that the path's end requires, in order. Nodes that are being
    loaded count with their target pages."""
    parts: list[Pages] = []
    start = 0
    for node in required(plan.path, state.components[index].window_pages):
        held = node.pages[DEVICE][index]
        if held is None:
            count = len(_host_pages(node, index))
            held = target[start : start + count]
            start += count
        parts.append(held)
    if not parts:
        return NO_PAGES
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _count_host_pages(nodes: list[Node], index: int) -> int:
    return sum([len(_host_pages(node, index)) for node in nodes])


def _host_pages(node: Node, index: int) -> Pages:
    pages = node.pages[HOST][index]
    if pages is None:
        raise CoreBug(f"{node} has nothing to load of component {index}")
    return pages
