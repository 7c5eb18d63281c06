"""Bugs that are planted in the real code: small, realistic mistakes, each in place of one function
or a few. The sequence that shows a bug is in `sequences`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hicache.core import (
    admission,
    core,
    eviction,
    insertion,
    pins,
    placement,
    prefetch,
    refusals,
    requests,
    stores,
    transfers,
    tree,
)
from hicache.core import state as core_state
from hicache.core.actions import Admitted, Outcome, StorageDetached, Unpinned
from hicache.core.components import Full, SlidingWindow
from hicache.core.config import Config
from hicache.core.events import Event
from hicache.core.eviction import delete, delete_dead, make_host_room
from hicache.core.ledger import Pool
from hicache.core.prefetch import oldest
from hicache.core.transfers import open_receipt
from hicache.core.types import NO_PAGES, Tier, TransferId
from hicache.core.view import CoreView
from hicache.devices.base import Device, DeviceEvent, Direction, Front, Stream
from hicache.runtime import controller, ranks
from hicache.runtime.controller import Ended, TransferQueue
from hicache.runtime.driver import Driver
from hicache.runtime.ranks import Agreement, Call, Group, Turn, Values
from tests.planted.planting import Patch, bug

# -- admission

_admission_begin_prefill = admission._begin_prefill
_admission_extend = admission._extend
_admission_prefill_done = admission.prefill_done
_refusals_reply_that_frees = refusals._reply_that_frees


@bug(admission, "prefill_done")
def failed_prefill_is_published(state: Any, event: Any) -> None:
    """The pages of a pass that failed are put into the tree."""
    _admission_prefill_done(state, event._replace(ok=True))


@bug(admission, "_begin_prefill")
def prefill_skips_its_load(state: Any, request: Any, end: int) -> None:
    """A prefill is not told of the load that it must wait for."""
    _admission_begin_prefill(state, request, end)
    state.out[-1] = state.out[-1]._replace(after=())


@bug(admission, "_extend")
def growth_allocates_twice(state: Any, request: Any, total: int) -> None:
    """A granted growth allocates its pages twice, and the first ones leak."""
    tables = list(request.tables)
    _admission_extend(state, request, total)
    lost = len(request.tables[0]) - len(tables[0])
    if state.pools[0][0].free >= lost and len(tables) == 1:
        request.tables = tables
        _admission_extend(state, request, total)


@bug(refusals, "_reply_that_frees")
def refusals_wait_for_a_store(state: Any, component: int, needed: int) -> int:
    """A request that lacks device pages is told to wait for a store."""
    return _refusals_reply_that_frees(state, component, needed) or oldest(state)


# -- backup

_backup_begin_backup = eviction.begin_backup
_backup_land_backup = eviction.land_backup


@bug(eviction, "begin_backup")
def write_back_counted_twice(
    state: Any, nodes: list[Any], number: int = -1, pages: int = 0
) -> bool:
    """Pages that an eviction waits for are counted twice until they are copied."""
    begun = _backup_begin_backup(state, nodes, number, pages)
    if begun and number >= 0:
        state.writing_back[number] += pages
    return begun


@bug(eviction, "land_backup")
def failed_backup_keeps_its_host_pages(state: Any, transfer: Any, ok: bool) -> None:
    """The host pages of a copy that failed are never given back."""
    for segment in () if ok else transfer.segments:
        segment.target = segment.target[:0]
    _backup_land_backup(state, transfer, ok)


@bug(eviction, "land_backup")
def failed_backup_keeps_its_lock(state: Any, transfer: Any, ok: bool) -> None:
    """A backup that fails never gives back the locks that it took."""
    if not ok:
        transfer.receipt = None
    _backup_land_backup(state, transfer, ok)


@bug(eviction, "may_publish")
def host_copy_below_uncopied_parent(state: Any, transfer: Any, node: Any, index: int) -> bool:
    """A host copy is published below a parent that has none."""
    return True


# -- core

_CoreView_peers = CoreView.peers


@bug()
def replies_below_the_last_are_ignored(patch: Patch) -> None:
    """A reply to a transfer below the last one answered counts as taken already."""
    answered: dict[int, int] = {}

    def above(real: Any) -> Any:
        def handle(state: Any, event: Any) -> None:
            if event.transfer in state.transfers and event.transfer < answered.get(id(state), 0):
                return
            real(state, event)
            answered.clear()
            answered[id(state)] = event.transfer

        return handle

    for owner, name in ((core, "_load_done"), (core, "_backup_done"), (admission, "prefill_done")):
        patch(owner, name, above(getattr(owner, name)))


@bug(CoreView, "peers")
def swa_map_omits_split_nodes(view: Any, tier: Any, component: int) -> Any:
    """The map from full to window pages omits nodes whose lower half has lost its window."""
    result = _CoreView_peers(view, tier, component)
    for node in view.nodes():
        full, other = node.pages[tier][0], node.pages[tier][component]
        if node.children and full is not None and other is not None:
            result[full] = 0
    return result


# -- eviction

_eviction_delete_dead = eviction.delete_dead
_eviction_delete_tail = eviction.delete_tail
_eviction_demote = eviction.demote
_eviction_next_victim = eviction.next_victim


@bug(eviction, "next_victim")
def the_warmest_is_evicted_first(queues: Any, policy: Any) -> Any:
    """The warmest copy of each queue is evicted first."""
    for heap in (heap for queue in queues for heap in queue.heaps):
        heap.sort(reverse=True)
    return _eviction_next_victim(queues, policy)


@bug(eviction, "demote")
def windows_stay_on_device_without_backbone(state: Any, node: Any) -> None:
    """A leaf that is evicted from device leaves its windows and states there."""
    if node.pages[1][0] is not None:
        eviction._free_copy(state, node, Tier.DEVICE, 0)
        eviction._refile(state, node)
        return
    _eviction_demote(state, node)


@bug(eviction, "delete_tail")
def write_back_leaves_an_empty_node(state: Any, node: Any, tier: Any, pages: int) -> None:
    """A leaf that host has no room for leaves the device, and stays an empty node."""
    if tier == Tier.DEVICE:
        eviction.demote(state, eviction.cut_tail(state, node, pages))
    else:
        _eviction_delete_tail(state, node, tier, pages)


@bug(eviction, "delete_dead")
def dead_leaves_below_locked_nodes_stay(state: Any) -> None:
    """A leaf without a live boundary stays while the node above it is locked."""
    state.dead[:] = [
        node for node in state.dead if node.parent is None or not any(map(any, node.parent.locks))
    ]
    _eviction_delete_dead(state)


# -- insertion

_insertion_donate = insertion._donate
_insertion_share = insertion._share


@bug(insertion, "_share")
def duplicate_pages_leak(state: Any, request: Any, path: Any) -> None:
    """Pages that a repeated prompt has computed again are neither adopted nor freed."""

    class Deaf(Pool):
        __slots__ = ()

        def give_back(self, pages: Any) -> None:
            """Frees nothing."""

    pools = state.pools[0]
    for pool in pools:
        pool.__class__ = Deaf
    try:
        _insertion_share(state, request, path)
    finally:
        for pool in pools:
            pool.__class__ = Pool


@bug(insertion, "_donate")
def donated_slot_stays_with_its_request(
    state: Any, request: Any, path: list[Any], made: Any
) -> None:
    """A request keeps the slot of a state that it has donated to a node."""
    tables = list(request.tables)
    _insertion_donate(state, request, path, made)
    request.tables[:] = tables


# -- transfers

_TransferQueue_issue = TransferQueue.issue
_queues_merged = controller._merged


class _Deaf(Front[Device]):
    """A device that ignores waits."""

    def wait(self, stream: Stream, mark: DeviceEvent) -> None:
        """Does nothing."""


def _issued_through(
    front: Callable[[Device], Device], direction: Direction
) -> Callable[[TransferQueue, Sequence[DeviceEvent]], None]:
    """Returns `Lane.issue` with a changed device for the transfer queue of this direction."""

    def issue(self: TransferQueue, after: Sequence[DeviceEvent]) -> None:
        device = self._device
        if self._direction is direction:
            self._device = front(device)
        _TransferQueue_issue(self, after)
        self._device = device

    return issue


@bug()
def backups_do_not_wait_for_passes(patch: Patch) -> None:
    """A backup does not wait for the passes before it, which may still write its source."""
    patch(TransferQueue, "issue", _issued_through(_Deaf, Direction.DEVICE_TO_HOST))


@bug()
def loads_do_not_wait_for_passes(patch: Patch) -> None:
    """A load does not wait for the passes before it, which may still use its targets."""
    patch(TransferQueue, "issue", _issued_through(_Deaf, Direction.HOST_TO_DEVICE))


@bug(TransferQueue, "ended")
def youngest_batch_is_answered_first(self: TransferQueue) -> list[Ended]:
    """When the oldest batch of a direction ends, the youngest is answered."""
    ended: list[Ended] = []
    device = self._device
    while self._batches and device.query(self._batches[0].device_events[-1]):
        batch = self._batches.pop()
        ok = not any(device.failed(item) for item in batch.device_events if device.query(item))
        for transfer in batch.transfers:
            del self._device_events[transfer]
            ended.append(Ended(transfer, ok))
    return ended


@bug(controller, "_merged")
def copy_writes_one_page_too_many(actions: tuple[Any, ...]) -> dict[str, Any]:
    """A copy also writes the page after its last one."""
    result = _queues_merged(actions)
    for name, (source, target) in result.items():
        below = int(target[-1]) - 1
        if below >= 0 and below not in target:
            result[name] = (np.append(source, source[-1]), np.append(target, below))
    return result


# -- ledger

_Pool_give_back = Pool.give_back


@bug(Pool, "give_back")
def freed_pages_keep_their_generation(self: Pool, pages: Any) -> None:
    """The generation of a page does not change when the page becomes free."""
    before = self.generation.copy()
    _Pool_give_back(self, pages)
    self.generation[:] = before


# -- locks


# -- matching


@bug(tree, "is_live")
def boundaries_ignore_the_last_component(state: Any, node: Any) -> bool:
    """A boundary counts as live although the last component is not there."""
    for index, component in enumerate(state.components[:-1]):
        above = node
        while (
            node.end_page - above.end_page < component.window_pages
            and above.parent is not None
            and index
        ):
            if not tree.is_there(above, index):
                return False
            above = above.parent
    return True


@bug()
def split_halves_are_views_of_one_array(patch: Patch) -> None:
    """The halves of a split node are views, so a small half keeps the whole array in memory."""

    def views(self: Any, pages: Any, at: int) -> tuple[Any, Any]:
        return pages[:at], pages[at:]

    patch(Full, "split", views)
    patch(SlidingWindow, "split", views)


# -- passes

_checkpoints_choose_checkpoint_slots = requests.choose_checkpoint_slots


@bug(requests, "choose_checkpoint_slots")
def passes_share_a_checkpoint_slot(state: Any, request: Any, transfer: Any, start: int) -> None:
    """A pass stores a state in the slot in which one before it still stores another."""
    passes, request.passes = request.passes, []
    _checkpoints_choose_checkpoint_slots(state, request, transfer, start)
    request.passes = passes


@bug(placement, "begun_tokens")
def next_pass_begins_where_the_last_reply_ended(state: Any, request: Any) -> int:
    """A pass computes again what one in flight computes."""
    return int(request.computed_tokens)


# -- placement

_placement_admit = placement._admit
_placement_place = placement.place


@bug(placement, "place")
def loaded_pages_reported_one_short(state: Any, request: Any, chunk: int) -> int:
    """A request that waits for a load is told that one page less is loaded for it."""
    end = _placement_place(state, request, chunk)
    for at, item in enumerate(state.out):
        if type(item) is Admitted and item.loaded_pages and item.loaded_pages[0]:
            state.out[at] = item._replace(
                loaded_pages=(item.loaded_pages[0] - 1, *item.loaded_pages[1:])
            )
    return end


@bug(placement, "_admit")
def seventh_request_takes_locks_of_the_first(state: Any, request: Any, plan: Any) -> None:
    """The seventh admitted request takes over the locks of the first."""
    if len(state.running) >= 6:
        first = next(iter(state.running.values()))
        if first.receipt is not None:
            transfers.release(state, first.receipt)
    _placement_admit(state, request, plan)


# -- prefetch

_prefetch_begin_fetch = prefetch._begin_fetch
_storage_transfers_end_every_wait = prefetch.end_every_wait


@bug(prefetch, "_budget_left")
def prefetch_budget_is_not_kept(state: Any) -> int:
    """Prefetches begin although the budget is used up."""
    return 1 << 40


@bug(prefetch, "_begin_fetch")
def fetch_evicts_for_everything_found(state: Any, lookup: Any) -> Any:
    """A fetch makes room for every page that storage has, not only for those that it brings."""
    fetch, reason = _prefetch_begin_fetch(state, lookup)
    if fetch is not None:
        make_host_room(state, 0, len(fetch.digests) + 1)
    return fetch, reason


@bug(prefetch, "report_detached")
def detach_is_reported_too_early(state: Any) -> None:
    """Storage is reported as detached while actions for it are in flight."""
    if not state.attached:
        state.out.append(StorageDetached())


@bug(prefetch, "end_every_wait")
def flush_leaves_requests_waiting(state: Any, reason: Any) -> None:
    """After a flush, requests still wait for the prefetches from before it."""
    if reason != "flushed":
        _storage_transfers_end_every_wait(state, reason)


# -- ranks

_Agreement_everywhere = Agreement._everywhere
_Agreement_agree = Agreement.agree
_Driver_feed = Driver.feed
_ranks_combined = ranks.combined


@bug(Agreement, "agree")
def idle_rank_skips_the_collective(self: Agreement) -> Turn[None]:
    """A rank without a finished transfer does not enter the collective at a poll."""
    for reply in self.executor.poll():
        self.end(reply)
    if self._ended:
        yield from _Agreement_agree(self)


@bug(Agreement, "_everywhere")
def ranks_do_not_agree_on_success(self: Agreement) -> Turn[dict[TransferId, int]]:
    """Ranks agree that a transfer has ended, but not on whether it succeeded."""
    everywhere = yield from _Agreement_everywhere(self)
    return {transfer: self._ended[transfer] for transfer in everywhere}


@bug(ranks, "agree_on_settings")
def ranks_do_not_agree_on_capacity(config: Config, group: Group) -> Turn[Config]:
    """Each rank has as many pages as fit into its own memory."""
    yield from ()
    return config


@bug(ranks, "combined")
def reduction_omits_the_last_rank(calls: Sequence[Call]) -> Values:
    """The last rank takes part in every collective, but its values are ignored."""
    return _ranks_combined(calls[:-1])


@bug(Driver, "feed")
def ranks_use_their_own_clock(self: Driver, event: Event) -> list[Outcome]:
    """Ranks other than the first sometimes give two uses the same time."""
    state: Any = self.core._state
    rank = getattr(getattr(self.executor, "group", None), "rank", 0)
    before = state.tick
    outcomes = _Driver_feed(self, event)
    if rank and before % 3 == 0:
        state.tick = before
    return outcomes


@bug(ranks, "offered")
def ranks_take_the_least_of_their_deepest_boundaries(reply: Any) -> int:
    """A rank stands for every number up to its deepest boundary, also where it has no boundary."""
    return ranks.upto(int(reply[1]))


# -- reclaim

_reclaim_evict_device = eviction.evict_device


@bug(eviction, "evict_device")
def eviction_visits_the_whole_tree(state: Any, index: int, count: int) -> None:
    """An eviction of a single page looks at every node."""
    stack = list(state.root.children.values())
    for node in stack:
        state.touched[node.id] = node
        stack.extend(node.children.values())
    _reclaim_evict_device(state, index, count)


# -- requests


@bug(requests, "_clear")
def tables_are_rewritten_in_place(state: Any, request: Any, index: int, first: int) -> None:
    """Pages behind a window are removed from the very table that was handed out."""
    since, request.cleared_pages[index] = request.cleared_pages[index], first
    table = request.tables[index]
    own = table[max(since, request.shared_pages) : first].copy()
    state.pools[Tier.DEVICE][index].give_back(own[own >= 0])
    table.flags.writeable = True
    table[since:first] = -1
    table.flags.writeable = False


# -- stores

_queue_forget_storage = core_state.forget_storage
_stores_acknowledge = stores._acknowledge
_stores_piece = stores._piece
_fetched_grow = prefetch._grow
_fetched_land = prefetch._land


@bug(stores, "_acknowledge")
def stores_are_not_announced(state: Any, segment: Any, node: Any, count: int) -> None:
    """Routers are not told what storage has."""
    message = len(state.out)
    _stores_acknowledge(state, segment, node, count)
    del state.out[message:]


@bug(stores, "_piece")
def state_is_stored_under_the_first_digest(state: Any, node: Any, segment: Any) -> Any:
    """A state is stored under the digest of the first page of its node."""
    piece = _stores_piece(state, node, segment)
    if state.components[segment.component].positional:
        return piece
    return piece._replace(digests=tree.digests_of(state, node)[:1])


@bug(core_state, "forget_storage")
def lost_storage_is_believed(state: Any) -> None:
    """What was stored before storage was attached is still believed to be there."""
    before = state.beliefs_since
    _queue_forget_storage(state)
    state.beliefs_since = max(1, before)


@bug(prefetch, "_land")
def fetch_lands_after_a_flush(state: Any, transfer: Any, pages: int, owner: Any) -> int:
    """A fetch that began before a flush is put into the tree after it."""
    if transfer.receipt is None:
        transfer.receipt = open_receipt(state, f"fetch {transfer.id}", True)
    return _fetched_land(state, transfer, pages, owner)


@bug(prefetch, "_grow")
def fetched_nodes_were_never_used(state: Any, transfer: Any, path: Any, *rest: Any) -> bool:
    """A node that a fetch makes counts as used before everything else."""
    known = len(path)
    done = _fetched_grow(state, transfer, path, *rest)
    for node in path[known:]:
        node.last_use = [0] * len(node.last_use)
    return done


# -- transfers

_transfers_transfer_of = transfers.transfer_of


@bug(placement, "cancel_load")
def failed_load_is_adopted(state: Any, transfer: Any) -> None:
    """The pages of a load that failed are put into the tree."""
    placement.land(state, transfer)


@bug(placement, "lend_own")
def pass_pages_are_not_lent(state: Any, request: Any, transfer: Any) -> None:
    """Pages of a request that is gone are free while its last pass still writes them."""
    transfer.on_loan.extend(NO_PAGES for _ in state.components)


@bug(transfers, "transfer_of")
def reply_kind_is_not_checked(state: Any, transfer_id: int, kind: Any) -> Any:
    """A reply is accepted for any kind of transfer, a load's for that of a pass."""
    transfer = state.transfers.get(transfer_id)
    return transfer if transfer is not None else _transfers_transfer_of(state, transfer_id, kind)


# -- tree

_tree_truncate = tree.truncate


@bug(tree, "truncate")
def truncated_key_keeps_one_token(state: Any, node: Any, tier: int, keep: int) -> Any:
    """The key of a truncated node keeps the first token of what was cut off."""
    key = node.key
    pages = _tree_truncate(state, node, tier, keep)
    node.key = key[: keep * state.stride + 8]
    return pages


# -- pins

_expiry_due = pins._due
_pinning_want_unpin = pins.want_unpin


@bug(pins, "want_unpin")
def unpinned_prefix_stays_locked(state: Any, event: Any) -> None:
    """A pin that is given up keeps its locks."""
    if event.pin not in state.pins:
        _pinning_want_unpin(state, event)
    pin = state.pins.pop(event.pin)
    state.out.append(Unpinned(pin.id, pin.held_pages))


@bug(pins, "_needed")
def pins_are_bounded_by_what_they_hold(state: Any, pages: int, index: int) -> int:
    """The bound of pins counts no page of a prefix but the first."""
    return 1


@bug(pins, "time_passed")
def locked_nodes_never_expire(state: Any, event: Any) -> None:
    """A node that was in use when it was due is never looked at again."""
    state.period_ticks.append(state.tick)
    if len(state.period_ticks) <= state.config.ttl_periods:
        return
    due = _expiry_due(state, state.period_ticks.pop(0))
    for node in sorted(due, key=lambda node: -node.end_page):
        if not (node.children or node.segments or any(map(any, node.locks))):
            delete(state, node)
    delete_dead(state)
