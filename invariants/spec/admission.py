"""Admitting a waiting request: what it reuses, what is loaded for it, and the pages it starts with.

    match -> decide what to load -> hold it -> make room -> take pages

All of it happens, or the request is refused and waits on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hicache.core.actions import Admitted

from . import copies, marks, prefetching
from .cache import Cache
from .eviction import make_device_room
from .growth import begin_pass, fill_windows
from .insertion import hold_required, use
from .kinds import FULL
from .matching import boundaries, cut_windows, match, required
from .records import DEVICE, HOST, Flight, Hold, Node, Request
from .refusals import is_too_large, refuse, refuse_room

SLOTS = 3  # of a request for states: one to work on, two for checkpoints


@dataclass
class Plan:
    """An admission that is not decided yet. loads: (kind, node). needed: by kind, device pages to
    take, with the targets of loads. short: a kind of which there are too few pages."""

    path: list[Node]
    loads: list[tuple[int, Node]]
    needed: list[int]
    end_token: int = 0
    short: int | None = None
    hold: Hold = field(default_factory=set)
    load: Flight | None = None

    @property
    def pages(self) -> int:
        return self.path[-1].end if self.path else 0


def admit(cache: Cache, request: Request, chunk: int) -> None:
    if is_too_large(cache, request, cache.pages_of(request.length)):
        return
    if not prefetching.may_start(cache, request):
        return
    known = match(cache, request.key, request.match_pages)
    found = boundaries(cache, known)
    device, best = found.ends[found.device], found.ends[found.best]
    path = known[: found.best if _is_worth_loading(cache, request, best - device) else found.device]
    cut_windows(cache, path)
    loads = _to_load(cache, path)
    arriving = _arriving(cache, loads)
    if arriving:
        pages, free = cache.pages_of(request.length), cache.free(DEVICE, FULL)
        refuse(cache, request.number, "arriving", pages, free, after=arriving)
        return
    plan = _plan(cache, request, path, loads, chunk)
    if plan.short is not None and loads:  # without the load it may fit
        _drop(cache, request, plan)
        path = match(cache, request.key, request.match_pages)
        path = path[: boundaries(cache, path).device]
        cut_windows(cache, path)
        plan = _plan(cache, request, path, [], chunk)
    for kind, count in enumerate(plan.needed):
        if plan.short is None and not make_device_room(cache, kind, count):
            plan.short = kind
    if plan.short is not None:
        refuse_room(cache, request, plan.short, plan.needed[plan.short])
        _drop(cache, request, plan)
        return
    request.branch = found.ends[-1]
    _start(cache, request, plan)
    reused = min(device, plan.pages)
    cache.say(
        Admitted(
            request.number,
            reused,
            plan.pages - reused,
            request.length - request.computed,
            tuple(found.ends[at] for at in found.alone),
            tuple(_loading(plan, kind) for kind in range(len(cache.kinds))),
            request.branch,
        )
    )
    _take_pages(cache, request, plan)
    begin_pass(cache, request, plan.end_token)


def _is_worth_loading(cache: Cache, request: Request, pages: int) -> bool:
    """pages: how many more pages can be reused with the load. A request whose load or pass failed
    computes instead."""
    config = cache.config
    within = not config.load_quota_pages or pages <= config.load_quota_pages
    return request.may_load and within and pages >= max(1, config.load_threshold_pages)


def _to_load(cache: Cache, path: list[Node]) -> list[tuple[int, Node]]:
    """What the end of the path requires and what is not on device."""
    return [
        (kind, node)
        for kind in range(len(cache.kinds))
        for node in required(cache, path, kind)
        if not node.has(DEVICE, kind)
    ]


def _arriving(cache: Cache, loads: list[tuple[int, Node]]) -> int:
    """A load in flight that brings the first of these that is under way; 0 if none is."""
    for kind, node in loads:
        for flight in cache.flights.values():
            if flight.to == DEVICE and any(
                move.kind == kind and move.source in (node.copies[HOST][kind] or ())
                for move in flight.moves
            ):
                return flight.number
    return 0


def _plan(
    cache: Cache, request: Request, path: list[Node], loads: list[tuple[int, Node]], chunk: int
) -> Plan:
    """Holds what is reused, then counts the pages to take and whether they can be had."""
    kinds = range(len(cache.kinds))
    plan = Plan(path, loads, [0] * len(kinds))
    hold_required(cache, plan.hold, path)
    cache.running.append(request)  # so that its hold counts
    request.hold = plan.hold
    request.tables = [[] for _ in kinds]
    if loads:
        plan.load = _hold_for_load(cache, request, plan)
    rooms = [cache.available(DEVICE, kind) - _loading(plan, kind) for kind in kinds]
    size, total = cache.config.page_size, cache.pages_of(request.length)
    start = plan.pages * size
    plan.end_token = min(start + chunk, request.length)
    for kind in cache.windows:
        plan.end_token = min(plan.end_token, start + max(0, rooms[kind]) * size)
    fresh = max(0, cache.pages_of(plan.end_token) - plan.pages)
    for kind in kinds:
        if kind == FULL:
            count = max(0, total - plan.pages)  # for the whole prompt
        elif kind in cache.windows:
            count = fresh if fresh or start >= request.length else 1
        else:
            count = max(1, min(SLOTS, rooms[kind]))
        plan.needed[kind] = _loading(plan, kind) + count
        if plan.short is None and count > rooms[kind]:
            plan.short = kind
    return plan


def _hold_for_load(cache: Cache, request: Request, plan: Plan) -> Flight:
    """A load holds what it reads, and full attention on the whole path, until its reply. In an
    exchange, the host copies that it reads are free when it has landed."""
    flight = copies.begin(cache, DEVICE, request)
    for node in plan.path:
        copies.hold(flight.hold, node, DEVICE, FULL)
        copies.hold(flight.hold, node, HOST, FULL)
    for kind, node in plan.loads:
        copies.hold(flight.hold, node, HOST, kind)
    if cache.config.exchange_pages:
        flight.gives_up = {kind: _loading(plan, kind) for kind in range(len(cache.kinds))}
    return flight


def _loading(plan: Plan, kind: int) -> int:
    return sum(len(node.copies[HOST][one] or ()) for one, node in plan.loads if one == kind)


def _drop(cache: Cache, request: Request, plan: Plan) -> None:
    cache.running.remove(request)
    request.hold, request.tables = set(), []
    if plan.load is not None:
        copies.end(cache, plan.load)


def _start(cache: Cache, request: Request, plan: Plan) -> None:
    kinds = len(cache.kinds)
    request.shared = request.filled = plan.pages
    request.computed = min(request.length, plan.pages * cache.config.page_size)
    request.cleared, request.sources = [0] * kinds, [None] * kinds
    request.states = [[0, 0] for _ in range(kinds)]
    use(cache, request, plan.path)
    marks.visited(cache, plan.path, [plan.pages])
    for node in plan.path:
        node.hits += 1


def _take_pages(cache: Cache, request: Request, plan: Plan) -> None:
    """Full attention gets pages for the whole prompt, windows for the first pass, states their
    slots. What is reused comes first; what is being loaded counts with its targets."""
    total = max(cache.pages_of(request.length), plan.pages)
    if plan.load is not None:
        copies.begin_load(cache, plan.load, request, plan.loads)
    targets = {move.source: move.target for move in plan.load.moves} if plan.load else {}
    for kind in range(len(cache.kinds)):
        reused: list[int | None] = []
        for node in required(cache, plan.path, kind):
            host = [targets[page] for page in node.copies[HOST][kind] or () if page in targets]
            reused += node.copies[DEVICE][kind] or host
        fresh = plan.needed[kind] - _loading(plan, kind)
        if kind == FULL:
            request.tables[kind] = [*reused, *cache.take(fresh)]
        elif kind in cache.windows:
            before = [None] * (plan.pages - len(reused))
            request.tables[kind] = [*before, *reused, *[None] * (total - plan.pages)]
        else:
            request.tables[kind] = [*cache.take(fresh), *[None] * (SLOTS - fresh)]
            request.sources[kind] = reused[-1] if reused else None
    fill_windows(cache, request, cache.pages_of(plan.end_token))
