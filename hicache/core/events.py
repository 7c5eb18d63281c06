"""Events: the only input of `Core.handle`. They say what happened, and they are immutable.

An event of the engine carries a request id that the engine chose. A reply, of the engine
(`PrefillDone`) or an executor (`LoadDone`, `BackupDone`, `LookupDone`, `FetchDone`, `StoreDone`,
`DeleteDone`), carries the `transfer` of the action that it answers. Each action is answered exactly
once. A failure is an event with `ok=False` or fewer `pages`, not an exception.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from .types import Key, PinId, Record, RequestId, Tier, TransferId


class Arrived(Record, frozen=True):
    """A request exists. Answered by `Matched`; nothing is locked, split or marked as used. While
    storage is attached a prefetch may begin (`Lookup`), or `Prefetched` says why none does; neither
    comes if nothing is missing or if it joins a prefetch.

    length: prompt tokens. key: the prompt's cacheable pages, at most ceil(length / page_size).
    match_pages: the longest prefix that may be reused; an engine that needs the last token's logits
    passes (length - 1) // page_size. priority: higher is kept longer, under an eviction policy
    that asks for it.
    """

    request: RequestId
    key: Key
    length: int
    match_pages: int
    priority: int = 0

    @classmethod
    def from_tokens(
        cls,
        request: RequestId,
        tokens: ArrayLike,
        page_size: int,
        namespace: str = "",
        priority: int = 0,
    ) -> Arrived:
        """The event for a prompt of `tokens`, int64[n]. All of it may be reused but the page of the
        last token, whose logits the engine needs. Raises CallerError as `Key.from_tokens` does."""
        key, length = Key.from_tokens(tokens, page_size, namespace), np.size(tokens)
        return cls(request, key, length, max(0, length - 1) // page_size, priority)


class MatchWanted(Record, frozen=True):
    """How much of a waiting request would hit now? Answered by `Matched`, with no side effect."""

    request: RequestId


class AdmitWanted(Record, frozen=True):
    """The engine chose a waiting request and grants a first prefill chunk of `chunk` tokens.

    Answered by `Admitted` and `Prefill` (and `Load` where a host prefix is loaded back), or by
    `Refused`. After `Refused` the request still waits, and the tree is as before, except for splits
    and for evictions and copies to host that were begun for it.
    """

    request: RequestId
    chunk: int


class ContinueWanted(Record, frozen=True):
    """The next prefill chunk of an admitted request, `chunk` tokens.

    Fewer than `Config.passes` passes of the request are in flight; the new one begins where the
    last of them ends. Answered by `Prefill`, or by `Refused` if a component that takes its pages
    chunk by chunk finds none. The request then stays admitted, without a new forward pass.
    """

    request: RequestId
    chunk: int


class PagesWanted(Record, frozen=True):
    """A decoding request needs pages for `length` tokens. Answered by `Granted` or `Refused`.

    computed_tokens: the leading tokens whose KV is in place. The core frees pages that lie before
    the window of these tokens, so no running pass may still read those pages. 0: it frees nothing.
    """

    request: RequestId
    length: int
    computed_tokens: int = 0


class Finished(Record, frozen=True):
    """A request has finished. `key` covers the pages of its first `length` committed tokens.

    No forward pass of the request may be in flight. The pages stay in the tree up to the deepest
    boundary at which every component has what a later request needs. Answered by `Released`.
    """

    request: RequestId
    key: Key
    length: int

    @classmethod
    def from_tokens(
        cls, request: RequestId, tokens: ArrayLike, page_size: int, namespace: str = ""
    ) -> Finished:
        """The event for the committed `tokens`, as of `Arrived`: the prompt and what was generated,
        except the last generated token, whose KV was never computed."""
        return cls(request, Key.from_tokens(tokens, page_size, namespace), np.size(tokens))


class Aborted(Record, frozen=True):
    """A request is cancelled, at any stage, even while its prefill or load is in flight. Answered
    by `Released`."""

    request: RequestId


class Retracted(Record, frozen=True):
    """A running request gives its pages back and waits again, with prompt `key` and `length`.

    The new prompt is the old prompt and the generated tokens. The committed pages stay in the tree
    until they are evicted. No forward pass of the request may be in flight. Answered by `Released`.
    """

    request: RequestId
    key: Key
    length: int
    match_pages: int
    committed_tokens: int


class EvictWanted(Record, frozen=True):
    """Free `pages` pages of a component's pool on a tier. Answered by one `Evicted` per victim."""

    tier: Tier
    component: str
    pages: int


class Flushed(Record, frozen=True):
    """Forget every cached page. Refused ("running") while a request is admitted or a pass runs.
    storage: also delete what an attached storage has."""

    storage: bool = False


class PrefetchLimitReached(Record, frozen=True):
    """A waiting request has waited for its prefetch as long as it may, and goes on without it.
    Legal for every waiting request. Answered by `Prefetched` if a prefetch was under way, and
    otherwise by nothing. The core has no clock, so the engine keeps the time."""

    request: RequestId


class StorageAttached(Record, frozen=True):
    """A storage can be used from now on. What the core believed to be stored before is forgotten,
    so this also tells of a storage that was lost and came back; replies of actions that began
    before change no belief. Refused ("detaching") while actions of a detached one are in flight."""


class DetachWanted(Record, frozen=True):
    """Use storage no longer. No action for storage begins after this event, and every request stops
    waiting for its prefetch. Answered by `StorageDetached` when no action for storage is in flight
    any more: at once, or with the last reply."""


class TimePassed(Record, frozen=True):
    """A period of time has ended. What was not used for `Config.ttl_periods` periods expires: nodes
    that are not in use go from every tier, one `Evicted` per copy. The engine keeps the time."""


class PinWanted(Record, frozen=True):
    """The prefix `key` must stay on a tier as soon as it is there, until `UnpinWanted`.

    Answered by `Pinned`, or by `PinRefused` if pins may not hold so many pages. pin: a number that
    the caller chose. The prefix need not be cached: the pin takes hold of it when it comes, and
    again after a flush. It holds what the deepest boundary within the prefix requires.
    """

    pin: PinId
    key: Key
    tier: Tier = Tier.DEVICE

    @classmethod
    def from_tokens(
        cls,
        pin: PinId,
        tokens: ArrayLike,
        page_size: int,
        namespace: str = "",
        tier: Tier = Tier.DEVICE,
    ) -> PinWanted:
        """The event for the whole pages of `tokens`, as of `Arrived`."""
        return cls(pin, Key.from_tokens(tokens, page_size, namespace), tier)


class UnpinWanted(Record, frozen=True):
    """A pinned prefix may go again. Answered by `Unpinned`."""

    pin: PinId


class LoadDone(Record, frozen=True):
    transfer: TransferId
    ok: bool = True


class BackupDone(Record, frozen=True):
    transfer: TransferId
    ok: bool = True


class PrefillDone(Record, frozen=True):
    """The passes of a request end in the order in which they began. If one fails, the request waits
    again, and what its later passes say does not count."""

    transfer: TransferId
    ok: bool = True


class LookupDone(Record, frozen=True):
    """pages: how many pages after `Lookup.first_page` storage says that it has, up to the deepest
    boundary at which every component has what it requires; 0 if it has none or has failed."""

    transfer: TransferId
    pages: int = 0


class FetchDone(Record, frozen=True):
    """pages: the largest number n such that every page of every piece that is less than n pages
    after `Fetch.first_page` has arrived and was verified; 0 if the fetch failed."""

    transfer: TransferId
    pages: int = 0


class StoreDone(Record, frozen=True):
    """pages: how many leading pages of the action's pieces, in their order, are durable now."""

    transfer: TransferId
    pages: int = 0


class DeleteDone(Record, frozen=True):
    transfer: TransferId
    ok: bool = True


StorageReply: TypeAlias = LookupDone | FetchDone | StoreDone | DeleteDone
Reply: TypeAlias = LoadDone | BackupDone | PrefillDone | StorageReply
Event: TypeAlias = (
    Arrived
    | MatchWanted
    | AdmitWanted
    | ContinueWanted
    | PagesWanted
    | Finished
    | Aborted
    | Retracted
    | EvictWanted
    | Flushed
    | PrefetchLimitReached
    | StorageAttached
    | DetachWanted
    | TimePassed
    | PinWanted
    | UnpinWanted
    | Reply
)
