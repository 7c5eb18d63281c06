"""What `Core.handle` answers: actions for executors and notices for everyone else.

An *action* (`Load`, `Backup`, `Prefill`) asks for bytes to move or a forward pass to run, has a
`flight` number and is answered by exactly one reply event. A *notice* asks for nothing. All are
immutable and carry page numbers only: no tensors, nodes or callbacks. Page arrays are snapshots
and never change after the call that returned them.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

from .types import FlightId, Pages, RequestId, Tier

RefusalReason: TypeAlias = Literal["too_large", "no_pages", "writing_back", "arriving", "running"]


class Copy(NamedTuple):
    """Page `source[i]` of one tier to page `target[i]` of the other, for one component's pools.

    Sidecar pools that follow the component's slots move with it; executors resolve them.
    """

    component: str
    source: Pages
    target: Pages


class Load(NamedTuple):
    """Host to device, in the order of `copies`. Answered by `LoadDone`."""

    flight: FlightId
    request: RequestId
    copies: tuple[Copy, ...]


class Backup(NamedTuple):
    """Device to host, parents before children. Answered by `BackupDone`."""

    flight: FlightId
    copies: tuple[Copy, ...]


class StateSlots(NamedTuple):
    """What a request has of one copy-on-use component (a recurrence's state).

    source: the page to copy into `working` before the pass; -1: a pass that starts at token 0
    begins with the zero state, any other goes on with what `working` holds.
    checkpoints: of a prefill, (depth in tokens, page): leave a copy of the state after exactly that
    many tokens there; start_token < depth <= end_token. Empty in notices.
    checkpoint_slots: in decode, when the request's computed length reaches a multiple d of
    `interval`, a copy of the state goes to checkpoint_slots[(d // interval) % 2], or nowhere if
    that is -1.
    """

    component: str
    source: int
    working: int
    checkpoint_slots: tuple[int, int]
    interval: int
    checkpoints: tuple[tuple[int, int], ...]


class Prefill(NamedTuple):
    """Compute tokens start_token..end_token of a request. Answered by `PrefillDone`.

    tables: per positional component, the backbone first, the request's device pages by position; -1
    where it has none (behind a window). The backbone's covers at least `end_token` tokens. Pages
    before `start_token` are read, those from there on are written. after: flights of loads whose
    pages it reads; the pass may begin, but must not read a layer of those pages before the load
    delivered it. If such a load fails, the pass fails too. start_token == end_token (everything
    hit) is legal and costs nothing. end_token may fall short of the chunk that was granted, where a
    pool has no pages for all of it. states: per copy-on-use component.
    """

    flight: FlightId
    request: RequestId
    start_token: int
    end_token: int
    tables: tuple[Pages, ...]
    after: tuple[FlightId, ...]
    completes_prompt: bool
    states: tuple[StateSlots, ...] = ()


class Matched(NamedTuple):
    """Leading pages of a waiting request that are on device, and that follow on host.

    depths: per component alone, the deepest boundary (in pages) at which it is valid on any tier.
    """

    request: RequestId
    device_pages: int
    host_pages: int
    depths: tuple[int, ...] = ()


class Admitted(NamedTuple):
    """An admission succeeded: what was reused (disjoint tiers) and what must be computed.

    device_pages: to the deepest boundary that is valid on device for all components. host_pages:
    what loads add. depths: as in `Matched`. loaded_pages: of each component, those that are loaded
    (0 for the first where only a window or a state is missing). matched_pages: leading pages that
    are known.
    """

    request: RequestId
    device_pages: int
    host_pages: int
    tokens_to_compute: int
    depths: tuple[int, ...] = ()
    loaded_pages: tuple[int, ...] = ()
    matched_pages: int = 0


class Refused(NamedTuple):
    """Nothing was taken; `component` says whose pool was short. What to do, by reason:

    too_large  never fits this pool: give up or buy memory (`needed` > capacity).
    no_pages   requests use the pages, and no reply under way brings enough of them: wait for a
               request to end, or retract `preempt`.
    writing_back  replies under way bring the pages: ask again after the reply to flight `after`.
    arriving   another request is loading this prefix: ask again after the reply to `after`.
    running    a flush needs every request and every forward pass to have ended.

    after: 0 where no reply alone changes the answer. Whatever the reason, a request that ended or
    was retracted may change it.
    """

    request: RequestId
    reason: RefusalReason
    needed: int
    available: int
    preempt: RequestId
    component: str
    after: FlightId = 0


class Granted(NamedTuple):
    """A decode growth succeeded. `tables` and `states`, as in `Prefill`, are all that the request
    has."""

    request: RequestId
    tables: tuple[Pages, ...]
    states: tuple[StateSlots, ...] = ()


class Cached(NamedTuple):
    """Computed pages entered the tree, the first `pages` of the request; tables and states replace
    what the request had from now on."""

    request: RequestId
    pages: int
    tables: tuple[Pages, ...]
    states: tuple[StateSlots, ...] = ()


class Released(NamedTuple):
    """A request holds nothing any more."""

    request: RequestId


class Restarted(NamedTuple):
    """A transfer or forward pass of an admitted request failed: it waits again, holding nothing."""

    request: RequestId


class Evicted(NamedTuple):
    """Pages left a tier. demoted: whether the same prefix stays on the next tier down."""

    tier: Tier
    component: str
    pages: Pages
    last_use: int
    demoted: bool


class KvStored(NamedTuple):
    """For routers: pages with these digests are now on the tier (SHA-256 chain, see Key)."""

    tier: Tier
    digests: tuple[bytes, ...]


class KvRemoved(NamedTuple):
    """For routers: pages with these digests left the tier."""

    tier: Tier
    digests: tuple[bytes, ...]


Action: TypeAlias = Load | Backup | Prefill
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
)
Outcome: TypeAlias = Action | Notice

NO_REQUEST: RequestId = -1
