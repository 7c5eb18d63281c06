"""Admission of a request: what it reuses, what is loaded for it, and the pages it starts with; and
how loads and passes begin, land and fail (see `core`).

An admission succeeds as a whole or is refused. The order of the steps matters, because taking pages
may evict pages that the decision depends on:

    match -> decide what to load -> lock -> make room -> admit the request -> take pages

Without room for the load the request starts from the device anchor. A refusal releases the locks.
"""

import numpy as np

from .actions import NO_REQUEST, Admitted, Load
from .errors import CoreBug
from .eviction import make_device_room
from .insertion import use
from .lru import offer
from .node import LOAD, Node, Receipt, Request, Transfer, copy_of
from .refusals import refuse, refuse_room
from .requests import fill, filled, joined, own_pages, pages_of, write
from .state import State
from .transfers import (
    add_segments,
    close_transfer,
    copies_of,
    end_segment,
    lock,
    lock_required,
    open_receipt,
    open_transfer,
    release,
    required,
)
from .tree import anchors, cut_windows, match
from .types import BACKBONE, DEVICE, HOST, NO_PAGES, Pages, TransferId


class Plan:
    """An admission that is being decided. It has its locks, but has taken no pages yet.

    path: the nodes that are reused. pages: how many these have. loads: by component, the nodes of
    the path to load. loading: by component, their pages. needed: by component, device pages to
    take, including those for loads. end_token: where the first pass ends. short: the component
    whose pool has too few pages, or -1.
    """

    def __init__(
        self, path: list[Node], loads: list[list[Node]], receipt: Receipt, transfer: Transfer | None
    ) -> None:
        self.path = path
        self.pages = path[-1].end_page if path else 0
        self.loads = loads
        self.loading = tuple(
            [sum([len(copy_of(node, HOST, i)) for node in nodes]) for i, nodes in enumerate(loads)]
        )
        self.receipt = receipt
        self.transfer = transfer
        self.needed = list(self.loading)
        self.end_token = 0
        self.short = -1


def place(state: State, request: Request, chunk: int) -> int:
    """Admit a waiting request. Returns the token at which its first pass ends, or 0 if the request
    was refused and still waits."""
    if request.admitted or request.load or request.passes:
        raise CoreBug(f"request {request.id} is admitted already")
    known = match(state, request.key, request.match_pages, request.known_node)
    request.known_node = known[-1] if known else None
    device, best, depths = anchors(state, known)
    ends = [0, *[node.end_page for node in known]]
    on_device = ends[device]
    path = known[:best]
    if not _worth_loading(state, request, ends[best] - on_device):
        path = known[:device]
    on_host = len(path) > device
    cut_windows(state, path)
    loads = _to_load(state, path) if on_host else [[] for _ in state.components]
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
        path = path[: anchors(state, path)[0]]
        cut_windows(state, path)
        plan = _plan(state, request, path, _to_load(state, path), chunk)
    for index, count in enumerate(plan.needed if plan.short < 0 else ()):
        if not make_device_room(state, index, count):
            plan.short = index
            break
    if plan.short >= 0:
        refuse_room(state, request.id, plan.short, plan.needed[plan.short])
        _undo(state, plan)
        return 0
    request.branch_pages = ends[-1]
    _admit(state, request, plan)
    reused = min(on_device, plan.pages)
    valid = tuple([ends[depth] for depth in depths])
    rest, loaded = request.length - request.computed_tokens, plan.pages - reused
    admitted = Admitted(request.id, reused, loaded, rest, valid, plan.loading, ends[-1])
    state.out.append(admitted)
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
        [node for node in required(path, item.window_pages) if node.pages[DEVICE][index] is None]
        for index, item in enumerate(state.components)
    ]


def _arriving(loads: list[list[Node]]) -> TransferId:
    """The load in flight that already brings one of these nodes; 0 if none does."""
    for index, nodes in enumerate(loads):
        for node in nodes:
            for segment in node.segments:
                if segment.component == index and segment.transfer.kind is LOAD:
                    return segment.transfer.id
    return 0


def _plan(
    state: State, request: Request, path: list[Node], loads: list[list[Node]], chunk: int
) -> Plan:
    """Lock what is reused, then count the pages to take and check that the pools can give them."""
    receipt = open_receipt(state, f"request {request.id}")
    lock_required(state, receipt, path)
    transfer = None
    if any(loads):
        transfer = open_transfer(state, LOAD, request.id)
        lock_for_load(state, transfer, path, loads)
    plan = Plan(path, loads, receipt, transfer)
    size, start = state.config.page_size, plan.pages * state.config.page_size
    pools = state.pools[DEVICE]
    free_pages = [pool.available - plan.loading[index] for index, pool in enumerate(pools)]
    plan.end_token = min(start + chunk, request.length)
    for index in state.bounded:
        plan.end_token = min(plan.end_token, max(start, start + free_pages[index] * size))
    fresh = max(0, pages_of(state, plan.end_token) - plan.pages)
    for index, component in enumerate(state.components):
        if not component.positional:
            count = max(component.least_slots, min(component.slots, free_pages[index]))
        elif index == BACKBONE:
            count = pages_of(state, request.length) - plan.pages
        else:
            count = fresh if fresh or start >= request.length else 1
        plan.needed[index] += max(0, count)
        if plan.short < 0 and max(0, count) > free_pages[index]:
            plan.short = index
    return plan


def _undo(state: State, plan: Plan) -> None:
    release(state, plan.receipt)
    if plan.transfer is not None:
        close_transfer(state, plan.transfer)


def _admit(state: State, request: Request, plan: Plan) -> None:
    request.receipt, request.admitted = plan.receipt, True
    request.shared_pages = request.filled_pages = plan.pages
    request.shared_node = plan.path[-1] if plan.path else None
    request.computed_tokens = min(request.length, plan.pages * state.config.page_size)
    request.digests, request.known_node = (), None
    state.running[request.id] = request
    state.touched_requests[request.id] = None
    use(state, request, plan.path)
    for node in plan.path:
        node.hits += 1


def _take_pages(state: State, request: Request, plan: Plan) -> None:
    total = max(pages_of(state, request.length), plan.pages)
    count = len(state.components)
    targets = [NO_PAGES] * count
    request.tables, request.checkpoint_tokens = [], []
    request.cleared_pages, request.sources = [0] * count, [-1] * count
    for index, component in enumerate(state.components):
        pool, transfer, loading = state.pools[DEVICE][index], plan.transfer, plan.loading[index]
        if transfer is not None and loading:
            targets[index] = pool.reserve(loading, transfer.id)
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
    if plan.transfer is not None:
        begin_load(state, request, plan.transfer, plan.loads, targets)


def _reused(state: State, plan: Plan, index: int, target: Pages) -> Pages:
    """The device pages of the nodes that the path's end requires, in order. Nodes that are being
    loaded count with their target pages."""
    parts: list[Pages] = []
    start = 0
    for node in required(plan.path, state.components[index].window_pages):
        kept = node.pages[DEVICE][index]
        if kept is None:
            count = len(copy_of(node, HOST, index))
            kept = target[start : start + count]
            start += count
        parts.append(kept)
    if not parts:
        return NO_PAGES
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def lock_for_load(
    state: State, transfer: Transfer, path: list[Node], loads: list[list[Node]]
) -> None:
    """Lock the sources of the load and the path above them until the reply, and with exchanges note
    how many host pages it will free when it has landed."""
    transfer.receipt = open_receipt(state, f"load {transfer.id}")
    lock(state, transfer.receipt, path, DEVICE)
    lock(state, transfer.receipt, path, HOST)
    for index, nodes in enumerate(loads):
        if index != BACKBONE:
            lock(state, transfer.receipt, nodes, HOST, index)
    for index, nodes in enumerate(loads if state.config.exchange_pages else ()):
        transfer.gives_up.append(sum([len(copy_of(node, HOST, index)) for node in nodes]))
        state.giving_up[index] += transfer.gives_up[index]


def loaded_nodes(transfer: Transfer) -> list[Node]:
    """The nodes whose host copies a load locks, including those of its path, deepest first."""
    receipt = transfer.receipt
    entries = [] if receipt is None else [entry for entries in receipt.locked for entry in entries]
    nodes = {node.id: node for node, tier in entries if tier == HOST}
    return sorted(nodes.values(), key=lambda node: -node.end_page)


def begin_load(
    state: State,
    request: Request,
    transfer: Transfer,
    loads: list[list[Node]],
    targets: list[Pages],
) -> None:
    """Queue the load. loads, targets: by component, the nodes to load, parents first, and the
    device pages that are filled."""
    if request.load:
        raise CoreBug(f"request {request.id} begins a second load, {transfer}")
    for index, nodes in enumerate(loads):
        add_segments(state, transfer, index, nodes, targets[index])
    request.load = transfer.id
    state.out.append(Load(transfer.id, request.id, copies_of(state, transfer)))


def land(state: State, transfer: Transfer) -> None:
    """The bytes of a load have arrived: nodes adopt the pages, and the request uses the nodes'. If
    the request is gone, its pass keeps those that it reads."""
    request = state.requests.get(transfer.request)
    reader = request if request is not None else state.transfers.get(transfer.read_by)
    receipt = reader.receipt if reader is not None else None
    for segment in transfer.segments:
        # everything above the node is on device: the path is locked, and parents land first
        node, index = segment.node, segment.component
        adopted = end_segment(state, segment, DEVICE, adopt=True)
        if node is None:
            continue
        if request is not None and not adopted and state.components[index].positional:
            kept = copy_of(node, DEVICE, index)  # came meanwhile: the request uses it
            write(request, index, [(node.end_page - len(kept), kept)])
        if receipt is not None and (adopted or request is not None):
            lock(state, receipt, [node], DEVICE, index)
        else:
            offer(state.queues, state.eviction, node, DEVICE, index)
    transfer.segments.clear()
    transfer.request = NO_REQUEST
    if request is not None:
        request.load = 0


def cancel_load(state: State, transfer: Transfer) -> None:
    """A load failed: free its target pages. The host copies stay."""
    for segment in transfer.segments:
        end_segment(state, segment, DEVICE, adopt=False)
    transfer.segments.clear()


def begun_tokens(state: State, request: Request) -> int:
    """Tokens that are computed, or will be when the passes in flight have ended."""
    return (
        state.transfers[request.passes[-1]].end_token if request.passes else request.computed_tokens
    )


def lend_own(state: State, request: Request, transfer: Transfer) -> None:
    """Put the request's own pages, and the target pages of its load, on loan to a pass."""
    if transfer.on_loan:
        raise CoreBug(f"{transfer} has loans already")
    load = state.transfers.get(request.load)
    for index in range(len(state.components)):
        parts = [own_pages(state, request, index)]
        if load is not None:
            parts += [segment.target for segment in load.segments if segment.component == index]
        pages = parts[0] if len(parts) == 1 else np.concatenate(parts)
        transfer.on_loan.append(pages)
        state.pools[DEVICE][index].lend(pages)


def orphan_transfers(state: State, request: Request) -> bool:
    """Detach a request from its transfers. Pages that they still use become free when they end.

    Returns True if its last pass has taken over the request's locks."""
    load = state.transfers.get(request.load)
    if load is not None:
        load.request = NO_REQUEST
    for item in request.passes:
        state.transfers[item].request = NO_REQUEST
    if not request.passes:
        return False
    last = request.passes[-1]
    if load is not None:
        load.read_by = last
    state.transfers[last].receipt = request.receipt
    return True
