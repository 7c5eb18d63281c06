"""The core. Its only entry point is `handle(event) -> list of outcomes`.

A call is synchronous and deterministic, and changes nothing outside the core. This file holds the
entry point, the dispatch table, the handlers for transfer replies and for evictions and flushes on
demand, and the construction of the state. It decides nothing about requests; see the modules that
the dispatch table names.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from . import admission, entries
from .actions import NO_REQUEST, KvRemoved, Outcome, Refused
from .backup import land_backup
from .components.base import UNBOUNDED, Component
from .config import Config
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
from .eviction import evict_host, give_up_host
from .eviction_policies.base import asks_for_marks, second_chance_of
from .flights import close_flight, flight_of, forget_nodes
from .ledger import Pool
from .radix.lru import DUPLICATE, Queue, SecondChances
from .radix.marks import begin_event
from .radix.node import FlightKind, Node
from .radix.tree import digests_of, nodes_below
from .reclaim import evict_device
from .state import State
from .storage.attached import (
    attach_storage,
    begin_flush,
    delete_done,
    delete_stored,
    detach_storage,
)
from .storage.fetched import fetch_done
from .storage.prefetch import lookup_done
from .storage.stores import store_backed_up, store_done
from .transfers import cancel_load, land, loaded_nodes
from .types import BACKBONE, DEVICE, HOST, TIERS, Tier
from .validation import whole
from .view import CoreView
from .wants.expiry import time_passed
from .wants.pinning import hold_pinned, let_go_flushed, want_pin, want_unpin


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
        if state.marked:
            begin_event(state)
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


def _load_done(state: State, event: LoadDone) -> None:
    flight = flight_of(state, event.flight, FlightKind.LOAD)
    request = state.requests.get(flight.request)
    if not event.ok:
        if not flight.legs:
            raise CallerError(
                f"flight {flight.id}: a load failed after a prefill that reads it was done; "
                "such a prefill must fail too"
            )
        if request is not None:
            admission.restart(state, request)
        cancel_load(state, flight)
    elif flight.legs:
        land(state, flight)
        if request is not None:
            state.touched_requests[request.id] = None
    gives_up = event.ok and bool(flight.gives_up)
    nodes = loaded_nodes(flight) if gives_up else []
    close_flight(state, flight)
    give_up_host(state, nodes)
    hold_pinned(state, DEVICE)


def _backup_done(state: State, event: BackupDone) -> None:
    flight = flight_of(state, event.flight, FlightKind.BACKUP)
    to_store = [leg.node for leg in flight.legs] if event.ok and state.attached else []
    land_backup(state, flight, event.ok)
    close_flight(state, flight)
    if to_store:
        store_backed_up(state, to_store)
    hold_pinned(state, HOST)


def _fetch_done(state: State, event: FetchDone) -> None:
    fetch_done(state, event)
    hold_pinned(state, HOST)


def _evict(state: State, event: EvictWanted) -> None:
    whole("pages", event.pages)
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
    passes = sum(flight.kind is FlightKind.PREFILL for flight in state.flights.values())
    if state.running or passes:
        busy, name = max(len(state.running), passes), state.config.components[BACKBONE]
        state.out.append(Refused(NO_REQUEST, "running", busy, 0, NO_REQUEST, name))
        return
    if state.attached:
        begin_flush(state)
    nodes = list(nodes_below(state.root))
    for flight in state.flights.values():
        forget_nodes(state, flight)
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
    for chances in state.chances:
        chances.forget()
    state.unused.clear()
    let_go_flushed(state)
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
        entries.load(entries.COMPONENTS, name).component(config) for name in config.components
    ]
    _check_components(config, made)
    writes = entries.load(entries.WRITE_POLICIES, config.write_policy).policy()
    if config.exchange_pages and (writes.contiguous or not writes.on_evict):
        raise CallerError(
            "exchange_pages: expected a write policy that copies on eviction, found "
            f"{config.write_policy}; use write_back"
        )
    queues = [
        [Queue(index, kind, component.window_pages) for kind in (DEVICE, HOST, DUPLICATE)]
        for index, component in enumerate(made)
    ]
    windows = [one.window_pages for one in made if one.window_pages < UNBOUNDED]
    state = State(
        config,
        tuple(made),
        entries.load(entries.EVICTION_POLICIES, config.eviction_policy).policy(),
        writes,
        entries.load(entries.PREFETCH_POLICIES, config.prefetch_policy).policy(),
        [
            [Pool(tier, *pair) for pair in zip(config.components, sizes, strict=True)]
            for tier, sizes in zip(TIERS, (config.device_pages, config.host_pages), strict=False)
        ],
        queues,
        _new_root(config),
        max(windows, default=0),
        not windows,
        tuple(index for index, one in enumerate(made) if one.positional and index != BACKBONE),
        max(component.interval for component in made),
        not all(component.positional for component in made),
        [0] * len(made),
        [0] * len(made),
    )
    _follow_policy(state)
    if config.storage:
        attach_storage(state, StorageAttached())
    return state


def _follow_policy(state: State) -> None:
    """Keep the marks that the eviction policy asks for."""
    state.marked = asks_for_marks(state.eviction)
    state.age, state.next_age = [0] * len(state.components), [0] * len(state.components)
    policy = state.second_chance = second_chance_of(state.eviction)
    if policy is None:
        return
    for pool, queues in zip(state.pools[DEVICE], state.queues, strict=True):
        most = -(-pool.capacity * policy.small_percent // 100)
        state.chances.append(SecondChances(most, pool.capacity * policy.ghost_percent // 100))
        queues[DEVICE].add_main()


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
