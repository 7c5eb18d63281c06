"""Admitting a waiting request: what it reuses, what is loaded for it, and the pages it starts with.

A request reuses as much as it can, and is never refused needlessly: if it does not fit with a load
it starts without. All of it happens, or the request is refused and waits on.
"""

from typing import NamedTuple

from hicache.core.actions import Admitted

from . import copies, prefetching
from .cache import Cache
from .eviction import make_room
from .growth import begin_pass, fill_windows
from .insertion import counts_as_used, hold_prefix
from .kinds import FULL
from .matching import end_nodes_before_windows, known_of, path_to, reach, requires
from .records import DEVICE, HOST, Hold, Node, Request, Transfer
from .refusals import can_never_fit, lacks_pages, say_refused

SLOTS = 3  # of a request for states: one to work on, two for checkpoints
Loads = list[tuple[int, Node]]  # kind, node


class Start(NamedTuple):
    """How a request might start. path: what it reuses. loads: what of that is not on device. hold:
    what it would hold. fresh: by kind, device pages to take besides the targets of loads, with the
    first pass up to `end_token`. short: a kind of which there are too few."""

    path: list[Node]
    loads: Loads
    hold: Hold
    fresh: list[int]
    end_token: int
    short: int | None

    @property
    def pages(self) -> int:
        return self.path[-1].end if self.path else 0

    def loaded(self, kind: int) -> int:
        return sum(len(node.pages(HOST, number)) for number, node in self.loads if number == kind)

    def needed(self, kind: int) -> int:
        return self.fresh[kind] + self.loaded(kind)


def start(cache: Cache, request: Request, chunk: int) -> None:
    """Admits the request, or refuses it."""
    if can_never_fit(cache, request, cache.rounded_up(request.length)):
        return
    if prefetching.must_wait(cache, request):
        return
    known = known_of(cache, request.key, request.match_pages)
    result = reach(cache, known)
    loading = _is_worth_it(cache, request, result.best - result.device)
    how = _how(cache, request, chunk, result.best if loading else result.device)
    arriving = _first_under_way(cache, how.loads)
    if arriving:
        pages, free = cache.rounded_up(request.length), cache.free(DEVICE, FULL)
        say_refused(cache, "arriving", pages, free, request.number, after=arriving)
        return
    if how.short is not None and how.loads:
        how = _how(cache, request, chunk, result.device)
    if not _got(cache, request, how):
        return
    request.branch, reused = known.depth, min(result.device, how.pages)
    request.computed = min(request.length, how.pages * cache.config.page_size)
    rest = request.length - request.computed
    depths = reused, how.pages - reused, rest, result.alone
    loaded = tuple(how.loaded(kind) for kind in range(len(cache.kinds)))
    cache.say(Admitted(request.number, *depths, loaded, request.branch))
    _take(cache, request, how)
    begin_pass(cache, request, how.end_token)


def _is_worth_it(cache: Cache, request: Request, more: int) -> bool:
    """Whether a load is, that lets so many more pages be reused. A request whose load or pass
    failed computes instead."""
    least, most = max(1, cache.config.load_threshold_pages), cache.config.load_quota_pages
    return request.may_load and least <= more <= (most or more)


def _first_under_way(cache: Cache, loads: Loads) -> int:
    """The load in flight that brings the first of these that one brings; 0 if none does."""
    brings = {
        move.source: transfer.number
        for transfer in cache.transfers.values()
        for move in transfer.moves
        if transfer.to == DEVICE
    }
    pages = (page for kind, node in loads for page in node.pages(HOST, kind))
    return next((brings[page] for page in pages if page in brings), 0)


def _how(cache: Cache, request: Request, chunk: int, upto: int) -> Start:
    """How the request might start with these leading pages. Full attention is taken for the whole
    prompt, windows for the first pass, which ends where they do, and states as many as there are
    slots for. Of each but full attention, something is better than nothing."""
    path = path_to(cache, request.key, request.match_pages)
    path = [node for node in path if node.end <= upto]
    end_nodes_before_windows(cache, path)
    kinds, size = range(len(cache.kinds)), cache.config.page_size
    loads = [
        (kind, node)
        for kind in kinds
        for node in requires(cache, path, kind)
        if not node.has(DEVICE, kind)
    ]
    hold: Hold = set()
    hold_prefix(cache, hold, path)
    how = Start(path, loads, hold, [0 for _ in kinds], 0, None)
    free = [cache.available(DEVICE, kind, hold) - how.loaded(kind) for kind in kinds]
    begin, end = how.pages * size, min(how.pages * size + chunk, request.length)
    first_pass = max(0, cache.rounded_up(end) - how.pages)
    fits = max(0, min([first_pass, *(free[kind] for kind in cache.windows)]))
    most = {FULL: max(0, cache.rounded_up(request.length) - how.pages)}
    most.update((kind, max(fits, min(1, first_pass))) for kind in cache.windows)
    most.update((kind, max(1, min(SLOTS, free[kind]))) for kind in cache.stateful)
    short = next((kind for kind in kinds if most[kind] > free[kind]), None)
    if cache.windows:
        end = min(end, begin + fits * size)
    return how._replace(fresh=[most[kind] for kind in kinds], end_token=end, short=short)


def _got(cache: Cache, request: Request, how: Start) -> bool:
    """Whether the pages of this start are free now. The request runs and holds what it reuses while
    others are evicted. If there are too few it is refused and holds nothing."""
    cache.running.append(request)
    request.hold, request.tables = how.hold, [[] for _ in cache.kinds]
    if how.loads:
        request.load = _hold_for_load(cache, request, how)
    short = how.short
    for kind in range(len(cache.kinds)):
        if short is None and not make_room(cache, DEVICE, kind, how.needed(kind)):
            short = kind
    if short is None:
        return True
    cache.running.remove(request)
    request.hold, request.tables = set(), []
    if request.load is not None:
        copies.end(cache, request.load)
        request.load = None
    lacks_pages(cache, request, short, how.needed(short), how.hold)
    return False


def _hold_for_load(cache: Cache, request: Request, how: Start) -> Transfer:
    """A load holds what it reads, and full attention on the whole path, until its reply. In an
    exchange, the host copies that it reads are free when it has landed."""
    transfer = copies.begin(cache, DEVICE, request)
    for node in how.path:
        copies.hold(transfer.hold, node, DEVICE, FULL)
        copies.hold(transfer.hold, node, HOST, FULL)
    for kind, node in how.loads:
        copies.hold(transfer.hold, node, HOST, kind)
    if cache.config.exchange_pages:
        loaded = {kind: how.loaded(kind) for kind in range(len(cache.kinds))}
        transfer.gives_up = {kind: count for kind, count in loaded.items() if count}
    return transfer


def _take(cache: Cache, request: Request, how: Start) -> None:
    """The request has its tables: by depth the pages that it reuses, which come with the load where
    they are not on device, and new ones; its slots for states, and the state that it starts from.
    What it reuses is used by this."""
    kinds, load = range(len(cache.kinds)), request.load
    request.shared = request.filled = how.pages
    request.cleared, request.sources = [0 for _ in kinds], [None for _ in kinds]
    request.states = [[0, 0] for _ in kinds]
    counts_as_used(cache, request, how.path, [])
    for node in how.path:
        node.hits += 1
    if load is not None:
        copies.begin_loading(cache, load, request, how.loads)
    targets = {move.source: move.target for move in load.moves} if load is not None else {}
    for kind in kinds:
        reused: dict[int, int] = {}
        for node in requires(cache, how.path, kind):
            host = [targets[page] for page in node.copies[HOST][kind] or () if page in targets]
            pages = node.copies[DEVICE][kind] or host
            reused.update(zip(cache.positions(node, kind), pages, strict=True))
        fresh = cache.new_pages(how.fresh[kind] if kind not in cache.windows else 0)
        if kind in cache.stateful:
            request.sources[kind] = next(iter(reused.values()), None)
            request.tables[kind] = [*fresh, *[None] * (SLOTS - len(fresh))]
        else:
            total = max(cache.rounded_up(request.length), how.pages)
            none: list[int | None] = [None] * (total - how.pages)
            request.tables[kind] = [*map(reused.get, range(how.pages)), *(fresh or none)]
    fill_windows(cache, request, cache.rounded_up(how.end_token))
