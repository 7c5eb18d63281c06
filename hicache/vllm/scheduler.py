"""The scheduler side of the connector: what is loaded and saved, decided by the real core.

vLLM owns the device tier: it knows which block has what, and what goes there when it is full. So
the core does not follow it. The core sees a page on its device tier for as long as a copy of it is
under way, and each copy is a short request of the core:

    load   a prompt arrives; the core says how much of it is on host, after a prefetch from storage;
           vLLM gives blocks; the core admits the request: `Load`; the copies land; it ends
    save   pages of a prompt are computed; the core admits a request that reuses nothing and
           "computes" these pages; they enter the tree: `Backup`; the copies land

Device pages of the core are numbers without memory. `_places` says which blocks they stand for. A
block is read or written only while it has the hash that it had when it was noted, and a reference
to it is held until the copy has ended. Imports nothing of vLLM: requests and blocks are used by
their attributes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import numpy as np

from hicache.core import events
from hicache.core.actions import Backup, Copy, Load, Matched, Outcome, Prefetched, Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import Detached
from hicache.core.types import Key, Tier, TransferId
from hicache.runtime.driver import CheckOptions, Observer, driver_of, first_of

from .groups import FULL, STATE, Group, Groups
from .orders import Adapter, Answer, Message, Orders

T = TypeVar("T")
Blocks = Sequence[Sequence[Any]]  # of a request: vLLM's `KVCacheBlock`s, by group
_SAVE_PAGES = 8  # new pages of a decoding request that are worth a save
# What is counted, once it has landed on all ranks. What failed counts nowhere else.
METRICS = {
    "host_tokens": "Tokens loaded from host memory",
    "storage_tokens": "Tokens loaded from storage",
    "saved_pages": "Pages copied to host memory, in full attention",
    "unsaved_pages": "Pages for which there was no room",
    "failed_loads": "Loads that failed, whose requests were computed",
    "failed_saves": "Copies to host that failed",
    "store_losses": "Values that the store did not read or write",
}
_SOON = ("arriving", "writing_back", "fetching")  # refusals that another answer follows


class _Place(NamedTuple):
    """A block of a page, its slot, the hash that says what it has, and the adapter that it belongs
    to."""

    slot: str
    block: Any
    hash: Any
    adapter: Adapter | None


@dataclass(slots=True, eq=False)
class _Lookup:
    """A request of vLLM that waits, and the core's request for its load. number: of the latter; -1
    if it has ended. name: of the former. prefill, load: once it was admitted. pages: that it
    reuses. sources: see `_sources`. changes: `ConnectorScheduler._changes` when it was put off.
    fetched: pages that prefetches for it have brought. waits: whether another answer is to be
    expected soon. limited: that storage was waited for longer than allowed. brings: tokens from
    host and storage, once it is under way."""

    number: int
    name: str
    since_s: float = 0.0
    prefill: Prefill | None = None
    load: Load | None = None
    pages: int = 0
    adapter: Adapter | None = None
    sources: dict[tuple[str, int], int] = field(default_factory=dict)
    changes: int = 0
    fetched: set[int] = field(default_factory=set)
    waits: bool = False
    limited: bool = False
    brings: tuple[int, int] = (0, 0)


@dataclass(slots=True, eq=False)
class _Known:
    """A request of vLLM. saved: its leading pages that the core was given. failed: a load of it
    has failed, so it computes. begins: tokens before its first pass, as far as this connector
    knows; -1 after that. foreign: its tokens when it began with more, which another connector has
    loaded, or shared that; -1 once vLLM has heard that it is right."""

    saved: int = 0
    failed: bool = False
    begins: int = -1
    foreign: int = -1


def _survives(call: Callable[..., T]) -> Callable[..., T]:
    """Calls once more, without the core, if a check of it fails."""

    @wraps(call)
    def again(self: ConnectorScheduler, *args: Any, **kwargs: Any) -> T:
        try:
            return call(self, *args, **kwargs)
        except Detached:
            self._drop()
            return call(self, *args, **kwargs)

    return again


class ConnectorScheduler:
    """The scheduler side. One thread calls it."""

    def __init__(
        self,
        groups: Groups,
        config: Config,
        ranks: int,
        now: Callable[[], float],
        wait_s: float,
        adapter: Callable[[Any], str],
        observers: Sequence[Observer] = (),
        notice: Callable[[str], None] = lambda text: None,
        check: tuple[str, str] = ("", ""),
    ) -> None:
        """now: seconds of a clock that never goes back. wait_s: the longest that a request waits
        for storage. adapter: a digest of what the adapter of a request (`lora_request`) is on disk;
        empty if that is not known. notice: told of changes, in a line. check: how the core is
        checked, and the folder for it (see `Check`)."""
        self.groups, self.counts = groups, Counter[str]()
        self._page, self._now, self._wait_s, self._adapter = groups.page, now, wait_s, adapter
        self.orders = Orders(ranks)
        checks = CheckOptions(*check, now, notice)
        self.driver = driver_of(Core(config), self.orders, checks, observers)
        self._view = self.driver.core.view
        self._window_pages = -(-groups.window // groups.page)
        self._number = self._outages = self._changes = 0
        self._lookups: dict[str, _Lookup] = {}
        self._known = defaultdict[str, _Known](_Known)
        self._notice = notice
        self._changed = False  # the weights: nothing is loaded or saved any more
        self._adapters: dict[tuple[str, str], str] = {}  # digests by name and path; empty: replaced
        self._loading: dict[TransferId, _Lookup] = {}  # under way
        self._doubted: frozenset[str] = frozenset()  # whose loads were under way when it detached
        self._saving: dict[TransferId, int] = {}  # pages of full attention of a backup under way
        self._unsure: dict[int, Any] = {}  # hashes by block, of requests that are foreign
        # by component and device page: its blocks
        self._places: dict[str, dict[int, list[_Place]]] = {name: {} for name in groups.components}

    # -- loads

    @_survives
    def matched_tokens(self, request: Any, computed: int) -> int | None:
        """Tokens after the first `computed` that can be loaded; None: ask again later. What is
        promised is the request's from now on, until vLLM gives it blocks or it ends."""
        name = request.request_id
        known = self._known[name]
        known.begins = computed
        if known.failed:
            return 0
        lookup = self._lookups.get(name)
        if self._bypasses(request):
            if lookup is not None:
                self._end(self._lookups.pop(name))
            return 0
        if lookup is None or (
            lookup.number < 0 and lookup.waits and lookup.changes != self._changes
        ):
            lookup = self._lookups[name] = self._ask(request, lookup)
        if lookup.load is not None and self._lacks(lookup, computed // self._page):
            self._put_off(lookup)  # vLLM has lost what it had when the load was promised
        if lookup.load is None and not self._promise(lookup, computed):
            waits = self._now() - lookup.since_s < self._wait_s
            return None if lookup.waits and waits else 0
        return max(0, lookup.pages * self._page - computed)

    def _ask(self, request: Any, before: _Lookup | None) -> _Lookup:
        """Tell the core of a prompt. before: of the same request, if it asks once more."""
        length = request.num_tokens
        key = self._key(request, length // self._page)
        name, adapter = request.request_id, self._adapter_of(request)
        lookup = _Lookup(self._next(), name, self._now(), adapter=adapter)
        if before is not None:
            lookup.since_s, lookup.fetched = before.since_s, before.fetched
        most = max(0, length - 1) // self._page - self.groups.drafts
        self._feed(events.Arrived(lookup.number, key, length, max(0, most)))
        return lookup

    def _promise(self, lookup: _Lookup, computed: int) -> bool:
        """Admit the core's request for a load, if there is something to load. Notes whether an
        answer is worth waiting for."""
        if not self._prefetched(lookup):
            return False
        matched = first_of(Matched, self._feed(events.MatchWanted(lookup.number)))
        assert matched is not None, "the core answers what would hit"
        pages = matched.device_pages + matched.host_pages
        if pages * self._page <= computed:
            lookup.waits = False
            return False
        outcomes = self._feed(events.AdmitWanted(lookup.number, 1))
        refused = first_of(Refused, outcomes)
        if refused is not None:
            lookup.waits = refused.reason in _SOON
            return False
        lookup.prefill, lookup.load = first_of(Prefill, outcomes), first_of(Load, outcomes)
        assert lookup.prefill is not None, "a request that was admitted has a pass"
        lookup.pages = lookup.prefill.start_token // self._page
        lookup.sources = self._sources(lookup.prefill, lookup.load)
        if lookup.load is None or self._lacks(lookup, computed // self._page):
            # The core still has pages on device, for a save, that vLLM has lost: they can be
            # loaded when the save has ended.
            self._put_off(lookup)
            return False
        return True

    def _put_off(self, lookup: _Lookup) -> None:
        """End the core's request for a load; another one begins when the core's device pages have
        changed."""
        self._end(lookup)
        lookup.waits, lookup.changes = True, self._changes

    def _sources(self, action: Prefill, load: Load | None) -> dict[tuple[str, int], int]:
        """The host page that a load copies, by component and place in the prompt."""
        at: dict[str, dict[int, int]] = {
            name: {number: page for page, number in enumerate(table.tolist())}
            for name, table in zip(self.groups.positional, action.tables, strict=True)
        }
        last = action.start_token // self._page - 1
        at[STATE] = {states.source: last for states in action.states}
        return {
            (copy.component, at[copy.component][target]): source
            for copy in (() if load is None else load.copies)
            for source, target in zip(copy.source.tolist(), copy.target.tolist(), strict=True)
        }

    def _lacks(self, lookup: _Lookup, first: int) -> bool:
        """Whether a load leaves out a page from `first` on that its boundary requires."""
        return any(
            (name, page) not in lookup.sources
            for name in self.groups.components
            for page in range(max(first, self._first_needed(name, lookup.pages)), lookup.pages)
        )

    def _first_needed(self, component: str, pages: int) -> int:
        """The first page that a boundary after so many pages requires."""
        if component == FULL:
            return 0
        return max(0, pages - (1 if component == STATE else self._window_pages))

    def _prefetched(self, lookup: _Lookup) -> bool:
        """Whether the prefetch of a prompt has ended, or is not waited for any more."""
        if lookup.number < 0:
            return False
        if self._view.requests[lookup.number].prefetch and not lookup.limited:
            if self._now() - lookup.since_s < self._wait_s:
                lookup.waits = True
                return False
            lookup.limited = True
            self._feed(events.PrefetchLimitReached(lookup.number))
        return True

    @_survives
    def after_alloc(self, request: Any, blocks: Blocks, external: int) -> None:
        """vLLM has given the request blocks. external: tokens that it waits for."""
        lookup = self._lookups.pop(request.request_id, None)
        if lookup is None:
            return
        known = self._known[request.request_id]
        if not external:
            self._end(lookup)
        elif not self._begin(lookup, blocks, external):
            # vLLM waits for it, so the workers report it as failed.
            known.failed = True
            self.counts["failed_loads"] += 1
            self.orders.fail(request.request_id)
            self._end(lookup)
        else:
            known.saved, known.begins = lookup.pages, lookup.pages * self._page

    def _fetched(self, lookup: _Lookup, external: int) -> int:
        """How many of the last tokens of a load were fetched from storage for it."""
        start = lookup.pages * self._page - external
        ends = [(page + 1) * self._page - start for page in lookup.fetched if page < lookup.pages]
        return sum(min(self._page, end) for end in ends if end > 0)

    def _begin(self, lookup: _Lookup, blocks: Blocks, external: int) -> bool:
        """Send a load for the blocks of a request that lack their contents. Returns False if a
        block is not there, or nothing is loaded into it."""
        load = lookup.load
        if load is None:
            return False
        copies, kept = defaultdict[str, list[tuple[int, int]]](list), []
        for group in self.groups.groups:
            mine = blocks[group.number]
            for page in range(self._first_needed(group.component, lookup.pages), lookup.pages):
                source = lookup.sources.get((group.component, page))
                for part, at in enumerate(group.blocks_of(page, self._page)):
                    block = mine[at] if at < len(mine) else None
                    if block is None or block.is_null:
                        if self.groups.reads(group, at, lookup.pages * self._page):
                            return False
                        continue
                    if block.block_hash is not None:
                        continue  # vLLM has it
                    if source is None:
                        return False
                    copies[group.slot(part)].append((source, block.block_id))
                    kept.append(block)
        order = Load(load.transfer, load.request, _copies(copies))
        self.orders.send(order, kept, [lookup.adapter], lookup.name)
        storage = self._fetched(lookup, external)
        lookup.brings = external - storage, storage
        self._loading[load.transfer] = lookup
        return True

    def _end(self, lookup: _Lookup) -> None:
        """End the core's request of one that is not loaded."""
        if lookup.number >= 0:
            if lookup.load is not None:
                self.orders.refuse(lookup.load)
            self._feed(events.Aborted(lookup.number))
            if lookup.prefill is not None:
                self._feed(events.PrefillDone(lookup.prefill.transfer, False))
        lookup.number, lookup.load, lookup.prefill = -1, None, None

    def _landed(self, reply: events.LoadDone) -> None:
        """A load has ended, and with it the core's request."""
        loading = self._loading.pop(reply.transfer, None)
        if loading is None or loading.prefill is None:
            return
        if reply.ok:
            self.counts["host_tokens"] += loading.brings[0]
            self.counts["storage_tokens"] += loading.brings[1]
        else:
            self.counts["failed_loads"] += 1
            if loading.name in self._known:  # it was not aborted meanwhile
                self._known[loading.name].failed = True
        if loading.number in self._view.requests:
            self._feed(events.Aborted(loading.number))
        if loading.prefill.transfer in self._view.transfers:
            self._feed(events.PrefillDone(loading.prefill.transfer, reply.ok))

    # -- saves

    @_survives
    def save(
        self, request: Any, computed: int, blocks: Blocks, *, all_of_it: bool, ends: bool = False
    ) -> None:
        """Save pages of a request that were not saved. computed: its tokens after this step.
        all_of_it: also if they are few. ends: it has ended well."""
        known = self._known[request.request_id]
        if self._is_foreign(known, request, blocks, ends) or self._bypasses(request):
            return
        tokens = min(computed, len(request.all_token_ids))
        pages = self._deepest(blocks, tokens // self._page, known.saved)
        least = known.saved + (1 if all_of_it else _SAVE_PAGES)
        if pages < least:
            return
        new, known.saved = pages - known.saved, pages
        number, length, key = self._next(), pages * self._page, self._key(request, pages)
        self._feed(events.Arrived(number, key, length, 0))
        action = first_of(Prefill, self._feed(events.AdmitWanted(number, length)))
        if action is not None and action.end_token == length:
            self._note(action, blocks, self._adapter_of(request))
            self._feed(events.PrefillDone(action.transfer))
            self._feed(events.Finished(number, key, length))
            self.counts["unsaved_pages"] += min(new, self._view.unsaved(key, pages))
        else:
            self.counts["unsaved_pages"] += new
            self._end(_Lookup(number, request.request_id, prefill=action))

    def _is_foreign(self, known: _Known, request: Any, blocks: Blocks, ends: bool) -> bool:
        """Whether a request has, or shares, what another connector has loaded, and that may be
        wrong: vLLM hears after the pass if such a load has failed, and drops the pass's token."""
        if known.begins < 0 and known.foreign < 0:
            return False
        mine = [item for group in blocks for item in group if item.block_hash is not None]
        hashes = {item.block_id: item.block_hash for item in mine}
        if known.begins >= 0:
            loaded, known.begins = known.begins < request.num_computed_tokens, -1
            if loaded or hashes.items() & self._unsure.items():
                known.foreign = request.num_tokens
                self._unsure |= hashes
        foreign = known.foreign == request.num_tokens and not ends
        if known.foreign >= 0 and not foreign:
            known.foreign = -1
            for number in hashes:
                self._unsure.pop(number, None)
        return foreign

    def _deepest(self, blocks: Blocks, pages: int, least: int) -> int:
        """The deepest boundary of at most so many pages at which every group has what a later
        request needs; `least` if none is deeper."""
        deep = (at for at in range(pages, least, -1) if self._stands(blocks, at))
        return next(deep, least)

    def _stands(self, blocks: Blocks, pages: int) -> bool:
        """Whether every group has the blocks that a boundary requires; of full attention those of
        the last page, as vLLM has all before them."""
        for group in self.groups.groups:
            mine, full = blocks[group.number], group.component == FULL
            for page in range(
                pages - 1 if full else self._first_needed(group.component, pages), pages
            ):
                for at in self._saved_blocks(group, page):
                    if at >= len(mine) or not _is_whole(mine[at], (at + 1) * group.block):
                        return False
        return True

    def _saved_blocks(self, group: Group, page: int) -> Iterator[int]:
        """The blocks of a page that its copy must have. Of a window smaller than a page these are
        the last ones: nobody reads the others, and vLLM often has none there."""
        for at in group.blocks_of(page, self._page):
            if self.groups.reads(group, at, (page + 1) * self._page):
                yield at

    def _note(self, action: Prefill, blocks: Blocks, adapter: Adapter | None) -> None:
        """Which blocks the device pages of a save stand for."""
        for name, table in zip(self.groups.positional, action.tables, strict=True):
            for page, number in enumerate(table.tolist()):
                self._place(name, number, page, blocks, adapter)
        for states in action.states:
            for depth, number in states.checkpoints:
                self._place(STATE, number, depth // self._page - 1, blocks, adapter)

    def _place(
        self, component: str, number: int, page: int, blocks: Blocks, adapter: Adapter | None
    ) -> None:
        result = self._places[component][number] = []
        for group in self.groups.of(component):
            mine, first = blocks[group.number], group.blocks_of(page, self._page).start
            for at in self._saved_blocks(group, page):
                if at >= len(mine) or not _is_whole(mine[at], (at + 1) * group.block):
                    result.clear()
                    return
                slot = group.slot(at - first)
                result.append(_Place(slot, mine[at], mine[at].block_hash, adapter))

    def _back_up(self, action: Backup) -> None:
        """Send a backup for the blocks for which its pages stand."""
        copies, pages = defaultdict[str, list[tuple[int, int]]](list), 0
        kept, adapters = [], set[Adapter | None]()
        for copy in action.copies:
            pages += len(copy.source) if copy.component == FULL else 0
            for source, target in zip(copy.source.tolist(), copy.target.tolist(), strict=True):
                places = self._places[copy.component].get(source)
                if not places or any(item.block.block_hash != item.hash for item in places):
                    self.orders.refuse(action)
                    return
                for value in places:
                    copies[value.slot].append((value.block.block_id, target))
                    kept.append(value.block)
                    adapters.add(value.adapter)
        self._saving[action.transfer] = pages
        self.orders.send(Backup(action.transfer, _copies(copies)), kept, adapters)

    # -- the life of requests, and steps

    @_survives
    def ended(self, request: Any, blocks: Blocks, well: bool = True) -> None:
        """A request has ended; its blocks are not freed yet. well: it was not aborted."""
        name = request.request_id
        lookup = self._lookups.pop(name, None)
        if lookup is not None:
            self._end(lookup)
        if not any(item.name == name for item in self._loading.values()):
            self.save(request, request.num_computed_tokens, blocks, all_of_it=True, ends=well)
        self._known.pop(name, None)

    def preempted(self, name: str) -> None:
        """A request has lost its blocks, and will ask again."""
        if name in self._known:
            self._known[name].saved = 0

    @_survives
    def message(self) -> Message:
        """What the workers are to do with the next step."""
        self._poll()
        self._sweep()
        return self.orders.message()

    def carry_on(self, answer: Answer) -> frozenset[str]:
        """Feed the core the replies of the workers. If the store has come back, it may have lost
        everything while it was out. Returns the requests whose loads are of no use."""
        self.orders.answered(answer.done)
        self._take(answer)
        return answer.failed | self._doubted

    @_survives
    def _take(self, answer: Answer) -> None:
        if answer.changed and not self._changed:
            self._changed = True
            self._notice(
                "hicache: the weights were changed: nothing is loaded or saved until vLLM is "
                "started again"
            )
            self._detach()
            for lookup in self._lookups.values():
                self._end(lookup)
            self._lookups.clear()
        self._poll()
        if answer.outages > self._outages and self._view.attached:
            self._outages = answer.outages
            self._feed(events.StorageAttached())

    def _drop(self) -> None:
        """The core is detached: nothing is loaded or saved any more, and what is being loaded may
        be wrong."""
        self._changed = True
        self._doubted = frozenset(loading.name for loading in self._loading.values())
        self._lookups.clear()
        self._loading.clear()

    def _detach(self) -> None:
        if self._view.attached:
            self._feed(events.DetachWanted())

    @property
    def remembered(self) -> int:
        """Requests of vLLM of which something is noted; 0 when all have ended."""
        return len(self._known) + len(self._lookups) + len(self._loading)

    @_survives
    def reset(self) -> bool:
        """Forget what is on host, and use storage no longer: the weights may be others now. Loads
        that were promised, and for which vLLM has given no blocks, are not in the way. Returns
        False while one is under way."""
        if self._view.attached:
            self._notice(
                "hicache: the cache was reset, so the weights may be others now; storage is not "
                "used until vLLM is started again"
            )
        self._detach()
        for name, lookup in list(self._lookups.items()):
            if lookup.load is not None:
                self._end(lookup)
                del self._lookups[name]
        self._poll()
        self._sweep()
        return first_of(Refused, self._feed(events.Flushed())) is None

    def _poll(self) -> None:
        """Feed the core every reply, also those that follow from others."""
        while replies := self.orders.poll():
            for reply in replies:
                self._feed(reply)
                if isinstance(reply, events.LoadDone):
                    self._landed(reply)
                elif isinstance(reply, events.BackupDone):
                    pages = self._saving.pop(reply.transfer, 0)
                    self.counts["saved_pages"] += pages if reply.ok else 0
                    self.counts["failed_saves"] += not reply.ok

    def _sweep(self) -> None:
        """Let the core forget the device pages whose copies have ended."""
        for name, pool in zip(self.groups.components, self._view.pools(Tier.DEVICE), strict=True):
            if pool.evictable:
                self._changes += 1
                self._feed(events.EvictWanted(Tier.DEVICE, name, pool.evictable))

    def _feed(self, event: events.Event) -> list[Outcome]:
        outcomes = [] if self.driver.detached else self.driver.feed(event)
        for outcome in outcomes:
            if isinstance(outcome, Backup):
                self._back_up(outcome)
            elif isinstance(outcome, Prefetched):
                for lookup in self._lookups.values():
                    if lookup.number == outcome.request:
                        lookup.fetched |= {
                            outcome.first_page + at for at in range(outcome.fetched_pages)
                        }
        return outcomes

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _key(self, request: Any, pages: int) -> Key:
        """The key of a request's first pages. Its namespace has what else the KV depends on."""
        tokens = request.all_token_ids[: pages * self._page]
        salt, adapter = request.cache_salt or "", self._adapter_of(request)
        name = f"{len(salt)}:{salt}:{adapter.digest if adapter else ''}" if salt or adapter else ""
        return Key.from_tokens(np.asarray(tokens, dtype=np.int64), self._page, name)

    def _bypasses(self, request: Any) -> bool:
        """Whether a request's KV depends on more than its tokens, its salt, its adapter and the
        weights, or on a salt that no key can have, or these have changed."""
        salt, adapter = request.cache_salt or "", self._adapter_of(request)
        return bool(
            self._changed
            or request.mm_features
            or request.prompt_embeds is not None
            or salt.encode(errors="replace").decode() != salt  # half of a surrogate pair
            or (adapter and not adapter.digest)
        )

    def _adapter_of(self, request: Any) -> Adapter | None:
        """The adapter of a request, without a digest if another one has been in its place."""
        lora = request.lora_request
        if not lora:
            return None
        place, digest = (lora.lora_name, lora.lora_path), self._adapter(lora)
        known = self._adapters.setdefault(place, digest)
        if known != digest:
            if known:
                self._notice(
                    f"hicache: adapter {lora.lora_name!a:.80} was replaced: nothing of it is kept "
                    "until vLLM is started again; give the new one a name of its own"
                )
            self._adapters[place] = digest = ""
        return Adapter(lora.lora_int_id, digest, lora.lora_path)


def _is_whole(block: Any, tokens: int) -> bool:
    """Whether vLLM has a hash for the whole block, which ends after so many tokens."""
    return (
        not block.is_null
        and block.block_hash is not None
        and getattr(block, "block_hash_num_tokens", tokens) == tokens
    )


def _copies(pages: dict[str, list[tuple[int, int]]]) -> tuple[Copy, ...]:
    """Copies of pages by slot. pages: sources and targets."""
    arrays = {slot: np.array(pairs, dtype=np.int64) for slot, pairs in pages.items()}
    return tuple(Copy(slot, *array.T.copy()) for slot, array in arrays.items())
