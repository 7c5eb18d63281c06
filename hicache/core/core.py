"""The core. Its only entry point is `handle(event) -> list of outcomes`: synchronous, deterministic
and without effects outside. It decides; executors move bytes and the engine runs the passes: each
answers its actions with one event each. A decode step is no event. The life of a page's content:

    taken       at AdmitWanted, ContinueWanted or PagesWanted, by the request (states: PrefillDone)
    written     by a pass or a decode step
    cached      at PrefillDone (of decode, at Finished or Retracted): a node has it now
    backed up   a Backup copies it to a host page of the node (write_back: when eviction comes)
    unlocked    behind a window, or at its request's end, if nobody else locks it: eviction may come
    demoted     evicted from device: the node has its host page alone, which a Store may have copied
    found       if it left host: a Lookup finds it in storage, a Fetch brings it to host (unlocked)
    landed      a Load brought it to a device page; at PrefillDone of the pass that reads it, or at
                LoadDone if that comes earlier

**Nodes and boundaries.** A node is a run of pages below its parent in a radix tree. Each component
(kind of attention) has a copy of the run or not, on device and on host. Of a prefix, a component
requires the last `window_pages` pages. Requests make boundaries, ends of nodes: at the end of each
pass and, with windows or (`Config.branch_states`) states, where the prompt leaves what the tree
knew, all rounded down to every component's interval; at their end, where the key ends, in a page
that is filled in part, too (with states: where they have one). What is past the last is their own.

    live boundary   a node's end at which every component has what it requires, on device or host
    live_distance   pages from the node's end down to the nearest live boundary at or below it: 0 if
                    its own end is one, else the least span(child) + live_distance(child); FAR (of
                    `node`) if that is at least the widest window, NONE if none is below
    unreachable     a copy that no live boundary at or below it requires, because all are too far or
                    there is none: live_distance >= window_pages

Live boundaries change when a component comes to a node or leaves its last tier, and with a split.
If the backbone (full attention) is the only component, every node's end is live. A match finds

    device anchor   the deepest node where every component is valid on device (S last_device_node)
    best anchor     the deepest where each is valid on device or host (S best_match_node)
    depth           of each component, the deepest where it alone is valid on device or host

**The ledger.** Each page of each pool (tier, component) is in one of five states:

    FREE --take-----> OWNED by a request -----+--cache--> CACHED by a node
    FREE --reserve--> RESERVED by a transfer -+
    OWNED, RESERVED, CACHED --give_back--> FREE, or while on loan RETIRING --last repay--> FREE

    a request    gives back its own pages that are out of a window, that no boundary requires or
                 that a node has too (duplicates), and at its end the rest
    a node       what is evicted, expires, is flushed, has no live boundary any more or is a state
                 beyond `states_per_path`; its host copy at LoadDone (`exchange_pages`)
    a transfer   the targets that no node took

On loan (`lend`) are the sources of a copy until it lands and, to a pass, its request's own pages
and the targets of its load. A cached page retires only at a flush, with a deleted node that a store
reads, or while a second pass of its request runs.

**Locks.** A receipt lists what its holder locked: a request, on device, what its prefix requires
(what is loaded for it, when that lands); a pin the same, on the pin's tier; of a transfer see
below. A release undoes that list. Only pages that a node has can be locked. On a tier, if the
backbone of a node is locked, so is that of every node above; if another component is, so is the
node's backbone, if it is there. So eviction reaches the unlocked cached pages of a pool and no
others. Fetches and stores lock host copies only. With write_back, a node above such a copy may be
on device alone: if it is copied to host, they lock its new copy, too; if deleted, the nodes below
it go with it, locked or not.

**Eviction** takes unreachable copies first; then, on host, those on host only; then the lowest
rank, then the deeper node. The backbone goes from the tier's leaves (nodes with no child there) up,
page by page from a leaf's end, as many as are short (as V; S whole nodes). A leaf on device goes
with all its components; of a node that stays, another component may go alone: a *tombstone* then.
For the backbone on device nothing that is reachable goes before a colder page that is being copied
to host: who wants room is refused until replies under way (of any kind, though the reason is called
writing_back) free or unlock it.

**Transfers.** A transfer is an action of any kind without its reply.

    kind     segments                   locks until the reply (of a path, the backbone)
    load     host to device             its path on both tiers, and what it copies
    backup   device to host             its path on both tiers, and what it copies
    fetch    to host pages of no node   what its end requires of what is known, on host
    store    host pages of one node     its path on host, and what it copies
    prefill  none                       none; the last of a request that is gone, its locks
    lookup, delete: none                none

    load     of `load_threshold_pages` or more, none of more than `load_quota_pages` (if not 0). An
             admission that has no room for it goes without. While another's load brings the same,
             it is refused (arriving). After a failure a request loads no more.
    prefill  the passes of a request end in the order in which they began. Transfers of an aborted
             or restarted request go on and end like others.
    backup   of nodes that `threshold` requests used (see write_policies). If `max_backups` are in
             flight, if host has no room or if it fails, it is tried again at the next insertion on
             their path; what is evicted before goes without a copy. Parents before children, the
             backbone first; they land in order. A backbone copy is discarded if a load, a pin or
             another backup locks a host copy of its node or below; under a `contiguous` policy (not
             write_back) also if its parent has none, and another component's if its node has no
             backbone on host. One for an eviction (write_back) begins if host has room. Its reply
             frees no page: a later eviction demotes the node, or drops it if it failed.
    lookup   of what the tree lacks of a request that arrives, if it is enough; others join.
    fetch    of what the lookup found, if host has room and, under a `contiguous` policy, has the
             prefix above it; with windows or states, of all or nothing. Nodes take what arrived.
    store    of one node. Nodes queue after a backup, and when they are used and storage is not
             believed to have their host copies; at most `max_stores` are in flight. A component
             whose pages are all stored is believed. A failed one is tried `store_tries` times.
    delete   of all that storage has, at a flush with `storage`; until its reply no lookup or store
             begins.

**Events.** An event is checked first; after a CallerError nothing has changed. *Room* is made by
evicting: Evicted, and Backup of what is written back, come before the outcome that needs it (all of
an admission before Admitted). AdmitWanted splits the node where its match ends. It takes the
backbone's pages of the whole prompt, so that no chunk waits for them (S, V: those of a chunk), and
of others those of a chunk. *Used*: `last_use` is a new tick; `hits` counts a node's requests, each
once per admission. *Insertion*: nodes take computed pages, after room is made for states. What
cannot be done now is `Refused`, with a reason; what was evicted or split for it stays so. While its
prefetch runs, an admission is refused if the prefetch policy waits; else it first does what
PrefetchLimitReached does. Pins hold what comes to their tier. KvStored and KvRemoved tell routers
what comes and goes. StorageDetached comes at once or with the last reply; a failed pass gives
Restarted alone.

    event                 reads         changes                        emits, in this order
    Arrived               tree          a waiting request              Matched, Lookup or Prefetched
    MatchWanted           tree          nothing                        Matched
    AdmitWanted           tree, pools   locks, room, used, tables      Admitted, Load, Prefill
    ContinueWanted        pools         windows, room, tables          Prefill
    PagesWanted           pools         windows, room, tables          Granted
    PrefillDone           request, tree load, insertion, used, locks   Cached, Backup, Store
    Finished              request, tree insertion, used, freed, locks  Backup, Released, Store
    Retracted             its request   the same, then it waits again  Backup, Released, Store
    Aborted               its transfers its own pages freed, locks     Abandoned, Released
    LoadDone              its transfer  nodes take its pages, locks    Restarted if it failed
    BackupDone            its transfer  nodes take its pages, locks    Store
    LookupDone            tree, host    locks and room on host         Fetch or Prefetched, Lookup
    FetchDone             tree          pages, beliefs, locks          Prefetched, Lookup
    StoreDone             its transfer  beliefs, queue, locks          Store
    DeleteDone            its transfer  queue of stores                Store
    PrefetchLimitReached  its request   it waits no longer             Prefetched, Abandoned
    EvictWanted           queues        room                           Evicted, Backup
    Flushed               requests      tree, locks, beliefs are gone  Prefetched, Abandoned, Delete
    StorageAttached       transfers     beliefs are gone
    DetachWanted          transfers     beliefs are gone, waits end    Prefetched, Abandoned
    TimePassed            ticks         expired nodes go               Evicted
    PinWanted             tree, pins    a pin and its locks            Pinned or PinRefused
    UnpinWanted           its pin       its locks end                  Unpinned
"""

from collections.abc import Callable
from itertools import chain, product
from typing import Any

import numpy as np

from . import admission, plugins
from .actions import NO_REQUEST, KvRemoved, Outcome, Refused
from .components import Component
from .config import UNBOUNDED, Config
from .errors import CallerError, CoreBug, HicacheError
from .events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DeleteDone,
    DetachWanted,
    Event,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
    StorageAttached,
    StoreDone,
    TimePassed,
    UnpinWanted,
)
from .eviction import drop_host_copy, evict_device, evict_host, land_backup
from .ledger import Pool
from .lru import ALSO_ON_DEVICE, Queue, is_unreachable, kind_now
from .node import BACKUP, LOAD, PREFILL, STORE, Node, Pin, Request, Transfer
from .pins import hold_pinned, release_flushed, time_passed, want_pin, want_unpin
from .placement import cancel_load, land, loaded_nodes
from .prefetch import fetch_done, lookup_done
from .refusals import check_integer
from .requests import own_pages
from .state import State
from .stores import (
    attach_storage,
    begin_flush,
    delete_done,
    delete_stored,
    detach_storage,
    store_backed_up,
    store_done,
)
from .transfers import close_transfer, forget_nodes, transfer_of
from .tree import digests_of, nodes_below, span
from .types import BACKBONE, DEVICE, HOST, TIERS, PageState, Tier
from .view import CoreView


class Core:
    """One cache. Raises CallerError for a caller's mistake, before anything has changed, and
    CoreBug when one of its own asserts fails. After a CoreBug, or after any exception other than
    such a CallerError, the state cannot be trusted, and every later call raises CoreBug."""

    __slots__ = ("_failure", "_state", "_turn", "view")

    def __init__(self, config: Config) -> None:
        self._state = _new_state(config)
        self._turn = [True]  # empty while a call runs; `pop` of a list is atomic in CPython
        self._failure = ""
        self.view = CoreView(self._state)

    def handle(self, event: Event) -> list[Outcome]:
        """Process one event. Returns its outcomes in the order in which they were decided.

        Raises CallerError for an event that breaks the contract or comes during another call."""
        handler = _HANDLERS.get(type(event))
        if handler is None:
            raise CallerError(f"expected an event of hicache.core.events, found {event!r}")
        try:
            self._turn.pop()
        except IndexError:
            raise self._not_now(event) from None
        state = self._state
        state.out = []
        state.touched.clear()
        state.touched_requests.clear()
        try:
            handler(state, event)
        except BaseException as error:
            begun = state.out or state.touched or state.touched_requests
            if isinstance(error, CallerError) and not begun:
                self._turn.append(True)
            else:
                self._failure = f"{type(event).__name__} ended in {type(error).__name__}: {error}"
            raise
        self._turn.append(True)
        return state.out

    def validate(self) -> None:
        """Check what holds between two events: the shape of the tree, who owns each page, the
        locks, the eviction queues. Takes as long as the cache is large; for production, too.

        Raises CoreBug at the first thing that is wrong. `python -O` takes the asserts away."""
        try:
            _validate(self._state)
        except AssertionError as error:
            raise CoreBug(f"the state is not valid: {error}") from error

    def _not_now(self, event: Event) -> HicacheError:
        if self._failure:
            return CoreBug(
                f"{type(event).__name__}: this core failed before and answers nothing any more: "
                f"{self._failure}"
            )
        return CallerError(
            f"{type(event).__name__}: handle() was called while another call runs; wait for its "
            "answer"
        )


def _validate(state: State) -> None:
    nodes, transfers = list(nodes_below(state.root)), list(state.transfers.values())
    holders: list[Request | Transfer | Pin] = [*state.running.values(), *transfers]
    holders += state.pins.values()
    receipts = {by.receipt.id: by.receipt for by in holders if by.receipt is not None}
    entries_of = [  # [component][kind][unreachable]: the nodes that have an entry
        [[{entry[3].id for entry in heap} for heap in queue.heaps] for queue in queues]
        for queues in state.queues
    ]
    for node in nodes:  # the shape of the tree
        above, length = node.parent, span(node, state.stride)
        assert above is not None, f"{node} has no parent"
        assert above.children.get(node.label) is node, f"{node} is not below {above}"
        assert length > 0, f"{node} is empty"
        assert node.end_page == above.end_page + length, f"{node} does not begin at {above}"
        for tier in (DEVICE, HOST):
            below = [c for c in node.children.values() if c.pages[tier][BACKBONE] is not None]
            assert node.with_pages[tier] == len(below), f"{node} counts its children"
    for tier, index in product((DEVICE, HOST), range(len(state.components))):
        pool, positional = state.pools[tier][index], state.components[index].positional
        loans, with_owner, protected = np.zeros_like(pool.loans), 0, 0
        for node in nodes:
            pages, locks = node.pages[tier][index], node.locks[tier][index]
            what = f"{node}, component {index} on {TIERS[tier].name.lower()}"
            if pages is not None:  # nodes own what is cached
                assert len(pages) == (span(node, state.stride) if positional else 1), what
                assert (pool.state[pages] == PageState.CACHED).all(), f"{what} is not cached"
                assert (pool.owner[pages] == node.id).all(), f"{what} is another's"
                with_owner += len(pages)
                protected += len(pages) * bool(locks)
            for number, receipt in locks.items():  # receipts list the locks
                assert pages is not None, f"{what} is locked and not there"
                assert receipts.get(number) is receipt, f"{what} is locked by nobody"
                assert (node, tier) in receipt.locked[index], f"{what} is on no list"
            kind = kind_now(node, tier, index)
            if kind >= 0:  # what can be evicted has an entry in its queue
                unreachable = is_unreachable(node, state.components[index].window_pages)
                assert node.id in entries_of[index][kind][unreachable], f"{what} is in no queue"
        for request in state.running.values() if tier == DEVICE else ():
            own = own_pages(state, request, index)
            assert (pool.owner[own] == request.id).all(), f"request {request.id} lacks its pages"
            assert (pool.state[own] == PageState.OWNED).all(), f"request {request.id} lost pages"
            with_owner += len(own)
        for transfer in transfers:  # transfers own what is reserved, and have loans
            for segment in transfer.segments:
                to = DEVICE if transfer.kind is LOAD else HOST
                if segment.component == index and to == tier and len(segment.target):
                    assert (pool.owner[segment.target] == transfer.id).all(), (
                        f"{transfer} lacks pages"
                    )
                    assert (pool.state[segment.target] == PageState.RESERVED).all(), (
                        f"{transfer} lost pages"
                    )
                    with_owner += len(segment.target)
                source = HOST if transfer.kind in (LOAD, STORE) else DEVICE
                if segment.component == index and source == tier:
                    np.add.at(loans, segment.source, 1)
            if transfer.on_loan and tier == DEVICE:
                np.add.at(loans, transfer.on_loan[index], 1)
        assert (pool.loans == loans).all(), f"{pool}: loans of no transfer"
        counts = np.bincount(pool.state, minlength=len(PageState)).tolist()
        assert pool.counts == counts, f"{pool}: counts {pool.counts}, has {counts}"
        in_use = pool.capacity - counts[PageState.FREE] - counts[PageState.RETIRING]
        assert in_use == with_owner, f"{pool}: {in_use} pages in use, {with_owner} have an owner"
        free = np.flatnonzero(pool.state == PageState.FREE)
        assert np.array_equal(np.sort(pool.free_pages()), free), f"{pool}: free list"
        assert pool.protected == protected, f"{pool}: {pool.protected} pages protected"
    for receipt in receipts.values():
        for index, locked in enumerate(receipt.locked):
            for node, tier in locked:
                name = f"{receipt.name} locks {node}"
                assert node.locks[tier][index].get(receipt.id) is receipt, f"{name} and does not"
                above = node.parent if index == BACKBONE else None
                if above is not None and above.pages[tier][BACKBONE] is not None:
                    assert above.locks[tier][BACKBONE], f"{name} and not above it"


def _load_done(state: State, event: LoadDone) -> None:
    transfer = transfer_of(state, event.transfer, LOAD)
    request = state.requests.get(transfer.request)
    if not event.ok:
        if not transfer.segments:
            raise CallerError(
                f"transfer {transfer.id}: a load failed after a prefill that reads it was done; "
                "such a prefill must fail too"
            )
        if request is not None:
            admission.restart(state, request)
        cancel_load(state, transfer)
    elif transfer.segments:
        land(state, transfer)
        if request is not None:
            state.touched_requests[request.id] = None
    gives_up = event.ok and bool(transfer.gives_up)
    nodes = loaded_nodes(transfer) if gives_up else []
    close_transfer(state, transfer)
    drop_host_copy(state, nodes)
    hold_pinned(state, DEVICE)


def _backup_done(state: State, event: BackupDone) -> None:
    transfer = transfer_of(state, event.transfer, BACKUP)
    to_store = [item.node for item in transfer.segments] if event.ok and state.attached else []
    land_backup(state, transfer, event.ok)
    close_transfer(state, transfer)
    if to_store:
        store_backed_up(state, to_store)
    hold_pinned(state, HOST)


def _fetch_done(state: State, event: FetchDone) -> None:
    fetch_done(state, event)
    hold_pinned(state, HOST)


def _evict(state: State, event: EvictWanted) -> None:
    check_integer("pages", event.pages)
    known = event.component in state.config.components
    if not known or event.pages < 0 or event.tier not in (DEVICE, HOST):
        tier = event.tier.name.lower() if isinstance(event.tier, Tier) else repr(event.tier)
        raise CallerError(
            f"evict: expected pages of {', '.join(state.config.components)} on device or host, "
            f"found {event.pages} of {event.component} on {tier}"
        )
    index = state.config.components.index(event.component)
    (evict_device if event.tier == DEVICE else evict_host)(state, index, event.pages)


def _flush(state: State, event: Flushed) -> None:
    passes = sum(transfer.kind is PREFILL for transfer in state.transfers.values())
    if state.running or passes:
        busy, name = max(len(state.running), passes), state.config.components[BACKBONE]
        state.out.append(Refused(NO_REQUEST, "running", busy, 0, NO_REQUEST, name))
        return
    if state.attached:
        begin_flush(state)
    nodes = list(nodes_below(state.root))
    for transfer in state.transfers.values():
        forget_nodes(state, transfer)
    for node in nodes:
        for tier in (DEVICE, HOST):
            for index, pages in enumerate(node.pages[tier]):
                if pages is not None:
                    state.pools[tier][index].give_back(pages)
                    if index == BACKBONE and state.config.kv_events:
                        state.out.append(KvRemoved(TIERS[tier], digests_of(state, node)))
        state.touched[node.id] = node
    for node in nodes:
        node.parent = None
    state.unused.clear()
    release_flushed(state)
    for queue in chain(*state.queues):
        for heap in queue.heaps:
            heap.clear()
    for pool in (pool for tier in state.pools for pool in tier):
        pool.protected = 0
    if any(state.writing_back):
        raise CoreBug(f"pages are written back that nothing evicts: {state.writing_back}")
    state.root = _new_root(state.config)
    if event.storage:
        delete_stored(state)


def _new_root(config: Config) -> Node:
    return Node(0, None, b"", b"", 0, len(config.components))


def _new_state(config: Config) -> State:
    made: list[Component] = [
        plugins.load(plugins.COMPONENTS, name)(config) for name in config.components
    ]
    _check_components(config, made)
    writes = plugins.load(plugins.WRITE_POLICIES, config.write_policy)()
    if config.exchange_pages and (writes.contiguous or not writes.on_evict):
        raise CallerError(
            "exchange_pages: expected a write policy that copies on eviction, found "
            f"{config.write_policy}; use write_back"
        )
    queues = [
        [Queue(index, kind, component.window_pages) for kind in (DEVICE, HOST, ALSO_ON_DEVICE)]
        for index, component in enumerate(made)
    ]
    windows = [component.window_pages for component in made if component.window_pages < UNBOUNDED]
    state = State(
        config,
        tuple(made),
        plugins.load(plugins.EVICTION_POLICIES, config.eviction_policy)(),
        writes,
        plugins.load(plugins.PREFETCH_POLICIES, config.prefetch_policy)(),
        [
            [Pool(tier, *pair) for pair in zip(config.components, sizes, strict=True)]
            for tier, sizes in zip(TIERS, (config.device_pages, config.host_pages), strict=False)
        ],
        queues,
        _new_root(config),
        max(windows, default=0),
        not windows,
        tuple(index for index, item in enumerate(made) if item.positional and index != BACKBONE),
        max(component.interval for component in made),
        not all(component.positional for component in made),
        [0] * len(made),
        [0] * len(made),
    )
    if config.storage:
        attach_storage(state, StorageAttached())
    return state


def _check_components(config: Config, made: list[Component]) -> None:
    """Raises CallerError if full is not the first component, or if a device pool is too small for
    one request."""
    if not made[BACKBONE].positional or made[BACKBONE].window_pages < UNBOUNDED:
        raise CallerError(f"components: expected full first, found {config.components[BACKBONE]}")
    between = max(component.interval for component in made) // config.page_size - 1
    for component, pages in zip(made, config.device_pages, strict=True):
        bounded = component.positional and component.window_pages < UNBOUNDED
        least = component.least_pages + (between if bounded else 0)
        if config.pin_pages:
            pages -= config.pin_pages[config.components.index(component.name)]
        if pages < least:
            raise CallerError(
                f"device_pages of {component.name}: expected at least {least}, which one request "
                f"needs, found {pages}"
            )


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    Arrived: admission.arrive,
    MatchWanted: admission.want_match,
    AdmitWanted: admission.admit,
    ContinueWanted: admission.continue_prefill,
    PagesWanted: admission.want_pages,
    Finished: admission.finish,
    Aborted: admission.abort,
    Retracted: admission.retract,
    PrefillDone: admission.prefill_done,
    LoadDone: _load_done,
    BackupDone: _backup_done,
    EvictWanted: _evict,
    Flushed: _flush,
    PrefetchLimitReached: admission.reach_prefetch_limit,
    StorageAttached: attach_storage,
    DetachWanted: detach_storage,
    LookupDone: lookup_done,
    FetchDone: _fetch_done,
    StoreDone: store_done,
    DeleteDone: delete_done,
    TimePassed: time_passed,
    PinWanted: want_pin,
    UnpinWanted: want_unpin,
}
