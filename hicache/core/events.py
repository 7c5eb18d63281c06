"""What happened: the only things that `Core.handle` takes. Past tense, immutable, small.

The scheduler's events carry a request id it chose. The executors' events (`LoadDone`, `BackupDone`,
`PrefillDone`) carry the `flight` of the action they answer, exactly once per action; failure is an
event (`ok=False`), never an exception.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from .types import FlightId, Key, RequestId, Tier


class Arrived(NamedTuple):
    """A request exists. Answered by `Matched`; nothing is locked, split or touched.

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


class MatchWanted(NamedTuple):
    """How much of a waiting request would hit now? Answered by `Matched`, with no side effect."""

    request: RequestId


class AdmitWanted(NamedTuple):
    """The scheduler chose a waiting request and grants a first prefill chunk of `chunk` tokens.

    Answered by `Admitted` and `Prefill` (and `Load` where a host prefix is loaded back), or by
    `Refused`, which leaves the request waiting and the tree as it was but for splits and for
    evictions already begun for it (`reason` "writing_back").
    """

    request: RequestId
    chunk: int


class ContinueWanted(NamedTuple):
    """The next prefill chunk of an admitted request, `chunk` tokens.

    Answered by `Prefill`, or by `Refused` where a component that takes its pages chunk by chunk
    finds none: the request stays admitted, and idle.
    """

    request: RequestId
    chunk: int


class PagesWanted(NamedTuple):
    """A decoding request must be able to hold `length` tokens. `Granted` or `Refused`.

    computed_tokens: those whose KV is in place, where no pass that still runs reads behind their
    window: pages that only earlier tokens needed are given back. 0: nothing is.
    """

    request: RequestId
    length: int
    computed_tokens: int = 0


class Finished(NamedTuple):
    """A request ended well. `key` covers the pages of its first `length` committed tokens.

    No forward pass of the request is in flight. They stay in the tree up to the deepest boundary
    at which every component has what a later request needs. Answered by `Released`.
    """

    request: RequestId
    key: Key
    length: int


class Aborted(NamedTuple):
    """A request is gone, at any stage, its prefill or load in flight or not. `Released`."""

    request: RequestId


class Retracted(NamedTuple):
    """A running request gives its pages back and waits again, with prompt `key` and `length`.

    The new prompt is what it had plus what it generated; its committed pages stay in the tree as
    long as they are not evicted. No forward pass is in flight. Answered by `Released`; the request
    is waiting again afterwards.
    """

    request: RequestId
    key: Key
    length: int
    match_pages: int
    committed_tokens: int


class EvictWanted(NamedTuple):
    """Free `pages` pages of a component's pool on a tier. Answered by `Evicted` per victim."""

    tier: Tier
    component: str
    pages: int


class Flushed(NamedTuple):
    """Forget every cached page. Refused ("running") while a request is admitted or a pass runs."""


class LoadDone(NamedTuple):
    flight: FlightId
    ok: bool = True


class BackupDone(NamedTuple):
    flight: FlightId
    ok: bool = True


class PrefillDone(NamedTuple):
    flight: FlightId
    ok: bool = True


Reply: TypeAlias = LoadDone | BackupDone | PrefillDone
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
    | Reply
)
