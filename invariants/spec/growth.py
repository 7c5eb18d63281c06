"""An admitted request goes on: the next chunk, more pages in decode, and what it no longer needs.

window    nothing is read any more before  min(computed, boundary still to be made) - window
state     a request has three slots: one to work on, and two for checkpoints in turn

A chunk and a growth first give back what no later token reads. Then they take all that is wanted,
or change nothing else.
"""

from collections.abc import Sequence

from hicache.core.actions import Granted, Prefill, StateSlots
from hicache.core.types import Pages

from . import copies
from .cache import Cache
from .eviction import make_room
from .kinds import FULL
from .matching import end_nodes_at
from .records import DEVICE, Request, Transfer, as_pages
from .refusals import can_never_fit, lacks_pages


def next_chunk(cache: Cache, request: Request, chunk: int) -> None:
    """As many tokens as are wanted, or as the windows have pages for, or a refusal. What the passes
    in flight read stays."""
    start, had = begun(cache, request), request.filled
    end = min(start + chunk, request.length)
    wanted = max(0, cache.rounded_up(end) - had)
    _let_windows_pass(cache, request, request.computed, cache.windows, wanted)
    free_pages = [cache.available(DEVICE, kind) for kind in cache.windows]
    end = min([end, *((had + free) * cache.config.page_size for free in free_pages)])
    count = max(int(end <= start < request.length), cache.rounded_up(end) - had)
    if not _got(cache, request, cache.windows, count):
        return
    fill_windows(cache, request, cache.rounded_up(end))
    begin_pass(cache, request, end)


def more_pages(cache: Cache, request: Request, length: int, computed: int) -> None:
    """A decoding request needs pages for `length` tokens."""
    pages, had, kinds = cache.rounded_up(length), len(request.tables[FULL]), (FULL, *cache.windows)
    if can_never_fit(cache, request, pages):
        return
    count = max(0, pages - had)
    if computed:
        _let_windows_pass(cache, request, max(computed, request.computed), kinds, count)
    if not _got(cache, request, kinds, count):
        return
    for kind in kinds:
        request.tables[kind] += cache.new_pages(count)
    request.filled += count
    refill_slots(cache, request, had * cache.config.page_size)
    cache.say(Granted(request.number, tables_of(cache, request), slots_of(cache, request)))


def _got(cache: Cache, request: Request, kinds: Sequence[int], count: int) -> bool:
    """Whether so many pages of each kind are free now. Evicts for none if there are too few of any.
    Refuses for the first that is short."""
    short = _short(cache, kinds, count)
    if short is None:
        short = next((kind for kind in kinds if not make_room(cache, DEVICE, kind, count)), None)
    if short is not None:
        lacks_pages(cache, request, short, count, retract=not passes_of(cache, request))
    return short is None


def _short(cache: Cache, kinds: Sequence[int], count: int) -> int | None:
    return next((kind for kind in kinds if count > cache.available(DEVICE, kind)), None)


# -- windows that have passed


def _let_windows_pass(
    cache: Cache, request: Request, computed: int, kinds: Sequence[int], count: int
) -> None:
    """After `computed` tokens, when so many pages of each kind are wanted: where a pool is short,
    nodes are cut so that nothing before the window is held."""
    give_back_passed(cache, request, computed)
    if _short(cache, kinds, count) is not None:
        give_back_passed(cache, request, computed, cut=True)


def give_back_passed(cache: Cache, request: Request, computed: int, cut: bool = False) -> None:
    """Gives back the pages of windows that no token after the first `computed` reads, and lets go
    of nodes that lie before the window as a whole. cut: also of the part of a node.

    A request that can still make a boundary keeps what this requires.
    """
    low = computed // cache.config.page_size
    boundary = _last_multiple(cache, computed)
    has_slots = all(None not in request.tables[kind] for kind in cache.stateful)
    if boundary > request.shared and has_slots:
        low = boundary
    for kind in cache.windows:
        first = max(low - cache.kinds[kind].window, request.cleared[kind])
        for node in cache.held_nodes(request.hold, DEVICE, kind) if cut else ():
            end_nodes_at(cache, [node], [first])
        release_before(cache, request, kind, first)
        request.cleared[kind] = max(0, first)
        request.tables[kind][: request.cleared[kind]] = [None] * request.cleared[kind]


def release_before(cache: Cache, request: Request, kind: int, depth: int) -> None:
    """The request holds a kind no longer on device at nodes that end at or before this depth."""
    for node in cache.held_nodes(request.hold, DEVICE, kind):
        if node.end <= depth:
            request.hold.difference_update(node.pages(DEVICE, kind))


def fill_windows(cache: Cache, request: Request, upto: int) -> None:
    count = max(0, upto - request.filled)
    for kind in cache.windows:
        request.tables[kind][request.filled : request.filled + count] = cache.new_pages(count)
    request.filled += count


# -- a pass, and the states that boundaries need


def passes_of(cache: Cache, request: Request) -> list[Transfer]:
    return [
        item for item in cache.transfers.values() if item.to is None and item.request is request
    ]


def begun(cache: Cache, request: Request) -> int:
    """Where the next pass begins: what is computed, or will be when those in flight have ended."""
    return max([request.computed, *(transfer.end_token for transfer in passes_of(cache, request))])


def begin_pass(cache: Cache, request: Request, end: int) -> None:
    """The pass may use the request's own pages, and the targets of its load, until its reply."""
    start, stored = begun(cache, request), _states_to_store(cache, request, end)
    transfer, load = copies.begin(cache, None, request), request.load
    transfer.end_token, transfer.checkpoints = end, stored
    for kind in range(len(cache.kinds)):
        loaded = {move.target for move in load.of(kind)} if load is not None else set()
        loaded.update(page for page in cache.own(request, kind) if page is not None)
        transfer.on_loan[kind] = loaded
    tables, slots = tables_of(cache, request), slots_of(cache, request, transfer)
    after, last = (load.number,) if load is not None else (), end == request.length
    numbers = transfer.number, request.number
    cache.say(Prefill(*numbers, start, end, tables, after, last, slots))
    request.sources = [None] * len(cache.kinds)


def _last_multiple(cache: Cache, tokens: int) -> int:
    """The deepest page depth within so many tokens at which every kind can have a boundary."""
    return tokens // cache.interval * cache.interval // cache.config.page_size


def where_others_start(cache: Cache, request: Request, start: int, end: int) -> list[int]:
    """The page depths up to which other requests can reuse what a pass computes: the deepest that
    every kind allows, and where their prompts are likely to branch off, because the tree knows this
    one so far, unless the request may reuse nothing, or states are kept at ends of passes alone.
    (With full attention alone they start anywhere.)"""
    size = cache.config.page_size
    deepest = branch = _last_multiple(cache, min(end, request.key.pages * size))
    branches = cache.config.branch_states if cache.stateful else bool(cache.windows)
    if branches and request.match_pages:
        branch = _last_multiple(cache, request.branch * size)
    return sorted({depth for depth in (branch, deepest) if start < depth * size <= deepest * size})


def where_it_ends(cache: Cache, request: Request, pages: int, tokens: int) -> list[int]:
    """The page depths at which an ending request can make boundaries: where it has every state;
    without states, the end of its key, whose last page may be partly filled."""
    if not cache.stateful:
        return [pages] if pages else []
    size = cache.config.page_size
    depths = set(range(size, min(tokens, pages * size) + 1, size))
    for kind in cache.stateful:
        depths.intersection_update(request.states[kind])
    return sorted(depth // size for depth in depths)


def _states_to_store(cache: Cache, request: Request, end: int) -> list[tuple[int, int, int]]:
    """(kind, tokens, slot): the deepest goes where decode would put it, the one before it into the
    other slot; a slot without a page, or one that a pass in flight writes, stores nothing."""
    size, pairs = cache.config.page_size, []
    busy = [(kind, at) for item in passes_of(cache, request) for kind, _, at in item.checkpoints]
    depths = where_others_start(cache, request, begun(cache, request), end)[::-1]
    for kind in cache.stateful if depths else ():
        first = slot_for(cache, kind, depths[0] * size)
        for depth, slot in zip(depths, (first, 1 - first), strict=False):
            if request.tables[kind][1 + slot] is not None and (kind, slot) not in busy:
                pairs.append((kind, depth * size, slot))
    return pairs


def slot_for(cache: Cache, kind: int, tokens: int) -> int:
    """Decode stores the states at multiples of the interval in the two slots in turn."""
    return tokens // cache.kinds[kind].interval % 2


def keep_last_state(cache: Cache, request: Request, tokens: int) -> None:
    """A request ends after `tokens`. Of the states stored in decode only the last counts, since a
    step that ran ahead may have overwritten the other; and only if its slot was there in time."""
    for kind in cache.stateful if request.computed >= request.length else ():
        slot, before = slot_for(cache, kind, tokens), request.states[kind]
        last = tokens - tokens % cache.kinds[kind].interval
        if last > request.length:
            missing = request.tables[kind][1 + slot] is None or last <= request.refilled
            before = [0 if missing else last] * 2
        request.states[kind] = [before[at] if at == slot else 0 for at in range(2)]


def refill_slots(cache: Cache, request: Request, since: int) -> None:
    """The request gets free pages for the slots that it lacks. since: tokens that it may have
    computed; the new slots do not have the states up to there."""
    for kind in cache.stateful:
        table = request.tables[kind]
        empty = [slot for slot, page in enumerate(table) if page is None]
        for slot in empty[: cache.free(DEVICE, kind)]:
            (table[slot],) = cache.new_pages(1)
            request.refilled = max(request.refilled, since)


# -- what outcomes say of a request's pages


def tables_of(cache: Cache, request: Request) -> tuple[Pages, ...]:
    return tuple(as_pages(request.tables[kind]) for kind in (FULL, *cache.windows))


def slots_of(
    cache: Cache, request: Request, transfer: Transfer | None = None
) -> tuple[StateSlots, ...]:
    """The slots for states; with a transfer, also what its pass has to copy."""
    state_slots = []
    for kind in cache.stateful:
        working, first, second = (-1 if page is None else page for page in request.tables[kind])
        source = request.sources[kind] if transfer is not None else None
        stored = transfer.checkpoints if transfer is not None else []
        pages = ((at, (first, second)[slot]) for item, at, slot in stored if item == kind)
        name, interval = cache.kinds[kind].name, cache.kinds[kind].interval
        slots = -1 if source is None else source, working, (first, second)
        state_slots.append(StateSlots(name, *slots, interval, tuple(sorted(pages))))
    return tuple(state_slots)
