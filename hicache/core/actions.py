"""Outcomes, the output of `Core.handle`: actions for executors and notices for everyone else.

An *action* (`Load`, `Backup`, `Prefill`, `Lookup`, `Fetch`, `Store`, `Delete`) asks to move or look
up bytes or to run a forward pass. It has a `transfer` number, and one reply event answers it. A
*notice* asks for nothing. All outcomes are immutable and carry page numbers only: no tensors, nodes
or callbacks. Page arrays are snapshots and never change after the call that returned them.
"""

from typing import Literal, NamedTuple, TypeAlias

from .types import Pages, PinId, Record, RequestId, Tier, TransferId

RefusalReason: TypeAlias = Literal[
    "too_large", "no_pages", "writing_back", "arriving", "running", "fetching", "detaching"
]
PrefetchEnd: TypeAlias = Literal[
    "", "too_short", "budget", "miss", "no_host_pages", "short", "late", "flushed", "detached"
]


class Copy(NamedTuple):
    """Page `source[i]` of one tier to page `target[i]` of the other, for one component's pools.

    Sidecar pools have the same page numbers and are copied too; executors look them up.
    """

    component: str
    source: Pages
    target: Pages


class Load(Record, frozen=True):
    """Host to device, in the order of `copies`. Answered by `LoadDone`."""

    transfer: TransferId
    request: RequestId
    copies: tuple[Copy, ...]


class Backup(Record, frozen=True):
    """Device to host, parents before children. Answered by `BackupDone`."""

    transfer: TransferId
    copies: tuple[Copy, ...]


class StateSlots(NamedTuple):
    """The slots of a request for one copy-on-use component (the state of a recurrence).

    source: the page to copy into `working` before the pass. If it is -1, a pass that starts at
    token 0 begins with the zero state, and any other pass continues with the state in `working`.
    checkpoints: for a prefill, pairs (depth in tokens, page). The pass must store a copy of the
    state after exactly that many tokens in the page; start_token < depth <= end_token. Empty in
    notices.
    checkpoint_slots: in decode, when the computed length of the request reaches a multiple d of
    `interval`, a copy of the state is stored in checkpoint_slots[(d // interval) % 2], unless that
    is -1.
    """

    component: str
    source: int
    working: int
    checkpoint_slots: tuple[int, int]
    interval: int
    checkpoints: tuple[tuple[int, int], ...]


class Prefill(Record, frozen=True):
    """Compute tokens start_token..end_token of a request. Answered by `PrefillDone`.

    tables: per positional component, the backbone first, the request's device pages by position; -1
    where it has none (before the window). The backbone's table covers at least `end_token` tokens.
    The pass reads the pages before `start_token` and writes those from there on. after: transfers
    of loads whose pages the pass reads. The pass may begin before they end, but must not read a
    layer of those pages before the load has delivered it. If such a load fails, the pass fails too.
    start_token == end_token is legal: then there is nothing to compute. The pass may be shorter
    than the chunk that was granted, if a pool has too few pages. states: per copy-on-use component.
    """

    transfer: TransferId
    request: RequestId
    start_token: int
    end_token: int
    tables: tuple[Pages, ...]
    after: tuple[TransferId, ...]
    completes_prompt: bool
    states: tuple[StateSlots, ...] = ()


class Piece(NamedTuple):
    """Consecutive pages of one component, on host and in storage.

    The page at depth `first_page + i` has the digest `digests[i]` (see `Key.page_digests`) and the
    host page `pages[i]`. For a component with states, a digest stands for the state after that
    page. Sidecar pools have the same page numbers and are copied too.
    """

    component: str
    first_page: int
    digests: tuple[bytes, ...]
    pages: Pages


class Lookup(Record, frozen=True):
    """How many pages after `first_page` are in storage? Answered by `LookupDone`.

    digests: of the page at depth `first_page` and those after it. known_pages: so many of the
    leading digests need not be asked for the backbone, because the tree has them. trailing_pages:
    by component in the order of the configuration, how many pages before a boundary it requires, 0
    for all of them; 1 for a state, which is asked for under the digest of the page that ends at the
    boundary. A boundary lies n pages after `first_page`, n >= 1. Pages before `first_page` count as
    there for every component.
    """

    transfer: TransferId
    request: RequestId
    first_page: int
    digests: tuple[bytes, ...]
    known_pages: int
    trailing_pages: tuple[int, ...]


class Fetch(Record, frozen=True):
    """Storage to host, in the order of `pieces`: each is read into its host pages. Answered by
    `FetchDone`.

    pages: how many pages after `first_page` it is about. The last piece may end before that, where
    the tree has the pages behind it."""

    transfer: TransferId
    request: RequestId
    first_page: int
    pieces: tuple[Piece, ...]
    pages: int


class Store(Record, frozen=True):
    """Host to storage, in the order of `pieces`. Answered by `StoreDone`."""

    transfer: TransferId
    pieces: tuple[Piece, ...]


class Delete(Record, frozen=True):
    """Delete every page of this cache from storage. Answered by `DeleteDone`."""

    transfer: TransferId


class Matched(Record, frozen=True):
    """How much of a waiting request is cached.

    device_pages: leading pages that can be used on device. host_pages: pages after those that a
    load can add. depths: for each component alone, the depth in pages up to which it is valid on
    any tier.
    """

    request: RequestId
    device_pages: int
    host_pages: int
    depths: tuple[int, ...] = ()


class Admitted(Record, frozen=True):
    """A request was admitted: what is reused, and what must be computed.

    device_pages: pages up to the deepest boundary that is valid on device for all components.
    host_pages: pages that the load adds. depths: as in `Matched`. loaded_pages: per component, the
    pages that are loaded (0 for the backbone if only a window or a state is missing).
    matched_pages: leading pages that are known to the tree.
    """

    request: RequestId
    device_pages: int
    host_pages: int
    tokens_to_compute: int
    depths: tuple[int, ...] = ()
    loaded_pages: tuple[int, ...] = ()
    matched_pages: int = 0


class Refused(Record, frozen=True):
    """No pages were taken; `component` names the pool that was short. What to do, by reason:

    too_large  the request can never fit this pool (`needed` > capacity).
    no_pages   requests use the pages, and the replies under way free too few: wait for a request
               to end, or retract the one that `retract` names. A request with passes in flight
               names none: ask again when one of them has ended.
    writing_back  replies under way let the pages go: ask again after the reply to transfer `after`.
    arriving   another request is loading this prefix: ask again after the reply to `after`.
    running    a flush needs every request and every forward pass to have ended.
    fetching   a prefetch for the request is under way: ask again after the reply to `after`, or
               after `PrefetchLimitReached`.
    detaching  actions of the storage that was detached are in flight, `after` is the oldest.

    after: 0 if no reply alone changes the answer. With any reason, the answer may also change when
    a request ends or is retracted.
    """

    request: RequestId
    reason: RefusalReason
    needed: int
    available: int
    retract: RequestId
    component: str
    after: TransferId = 0


class Granted(Record, frozen=True):
    """A decoding request has the pages that it asked for. `tables` and `states` (see `Prefill`)
    list everything that the request has."""

    request: RequestId
    tables: tuple[Pages, ...]
    states: tuple[StateSlots, ...] = ()


class Cached(Record, frozen=True):
    """The first `pages` pages of the request are in the tree. From now on the request uses these
    tables and states instead of its earlier ones."""

    request: RequestId
    pages: int
    tables: tuple[Pages, ...]
    states: tuple[StateSlots, ...] = ()


class Released(Record, frozen=True):
    """A request has no pages and no locks any more."""

    request: RequestId


class Restarted(Record, frozen=True):
    """A load or forward pass of an admitted request failed. The request has given back its pages
    and waits again."""

    request: RequestId


class Evicted(Record, frozen=True):
    """Pages were evicted from a tier. last_use: tick of their last use. demoted: whether the node
    keeps a copy on the tier below."""

    tier: Tier
    component: str
    pages: Pages
    last_use: int
    demoted: bool


class KvStored(Record, frozen=True):
    """For routers: pages with these digests are now on the tier (SHA-256 chain, see Key)."""

    tier: Tier
    digests: tuple[bytes, ...]


class KvRemoved(Record, frozen=True):
    """For routers: pages with these digests left the tier."""

    tier: Tier
    digests: tuple[bytes, ...]


class Prefetched(Record, frozen=True):
    """The prefetch of a waiting request has ended, or was not begun.

    first_page: where the lookup began. asked_pages, found_pages, fetched_pages: how many pages
    after it were looked for, were found, and are on host now. reason: why it ended before all that
    was asked was fetched:

    too_short  fewer pages than the threshold were missing, or were found.
    budget     too many tokens are being prefetched.
    miss       storage has fewer than were asked.
    no_host_pages  host has no room, or lacks the prefix that the write policy requires there.
    short      storage delivered less than it had promised.
    late       the request did not wait any longer, or was admitted or aborted.
    flushed, detached  the cache was flushed, or storage detached.
    """

    request: RequestId
    first_page: int
    asked_pages: int
    found_pages: int
    fetched_pages: int
    reason: PrefetchEnd


class Abandoned(Record, frozen=True):
    """Nobody waits for this transfer any more. Its executor answers as soon as it can, with what it
    has done."""

    transfer: TransferId


class StorageDetached(Record, frozen=True):
    """Storage was detached and no action for it is in flight: its executor may close it."""


class Pinned(Record, frozen=True):
    """A prefix is pinned. pages: how many of its leading pages are held now; the others will be
    when they come to the tier."""

    pin: PinId
    pages: int


class PinRefused(Record, frozen=True):
    """Pins may not hold so many pages: `needed` of a component's, and `available` are left."""

    pin: PinId
    component: str
    needed: int
    available: int


class Unpinned(Record, frozen=True):
    """A prefix is not pinned any more. pages: how many of its leading pages were held."""

    pin: PinId
    pages: int


HostTransfer: TypeAlias = Load | Backup
StorageAction: TypeAlias = Lookup | Fetch | Store | Delete
Action: TypeAlias = HostTransfer | Prefill | StorageAction
Notice: TypeAlias = (
    Matched
    | Admitted
    | Refused
    | Granted
    | Cached
    | Released
    | Restarted
    | Evicted
    | KvStored
    | KvRemoved
    | Prefetched
    | Abandoned
    | StorageDetached
    | Pinned
    | PinRefused
    | Unpinned
)
Outcome: TypeAlias = Action | Notice

NO_REQUEST: RequestId = -1
