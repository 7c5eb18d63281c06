"""The encoding of outcomes and events as bytes, or as numbers, for all digests.

This file lists which values of each outcome a digest covers, and encodes them so that different
values never give the same bytes. It does not compute digests; see `decisions` and `sim.recorder`.

The values are listed explicitly. So a recorded digest stays valid when a record of the core is
renamed, gets another field, or its fields change their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from hicache.core.actions import (
    Abandoned,
    Admitted,
    Backup,
    Cached,
    Copy,
    Delete,
    Evicted,
    Fetch,
    Granted,
    KvRemoved,
    KvStored,
    Load,
    Lookup,
    Matched,
    Outcome,
    Piece,
    Pinned,
    PinRefused,
    Prefetched,
    Prefill,
    Refused,
    Released,
    Restarted,
    StateSlots,
    StorageDetached,
    Store,
    Unpinned,
)
from hicache.core.events import (
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
from hicache.core.types import Pages

_REASONS = {"writing_back": "draining"}  # renamed reasons, with the name that digests still use


_WAITS = ("fetching", "detaching")  # reasons whose `after` a digest covers


def _copies(copies: Sequence[Copy]) -> tuple[object, ...]:
    return tuple((one.component, one.source, one.target) for one in copies)


def _states(states: Sequence[StateSlots]) -> tuple[object, ...]:
    return tuple(
        (
            one.component,
            one.source,
            one.working,
            one.checkpoint_slots,
            one.interval,
            one.checkpoints,
        )
        for one in states
    )


def _prefill(one: Prefill) -> tuple[object, ...]:
    return (
        one.flight,
        one.request,
        one.start_token,
        one.end_token,
        one.tables[0],
        one.after,
        one.completes_prompt,
        one.tables,
        _states(one.states),
    )


def _admitted(one: Admitted) -> tuple[object, ...]:
    return (
        one.request,
        one.device_pages,
        one.host_pages,
        one.tokens_to_compute,
        one.depths,
        one.loaded_pages,
        one.matched_pages,
    )


def _refused(one: Refused) -> tuple[object, ...]:
    reason = _REASONS.get(one.reason, one.reason)
    after = (one.after,) if reason in _WAITS else ()
    return one.request, reason, one.needed, one.available, one.preempt, one.component, *after


def _pieces(pieces: Sequence[Piece]) -> tuple[object, ...]:
    return tuple((one.component, one.first_page, one.digests, one.pages) for one in pieces)


def _lookup(one: Lookup) -> tuple[object, ...]:
    return (
        one.flight,
        one.request,
        one.first_page,
        one.digests,
        one.known_pages,
        one.trailing_pages,
    )


def _looked_up(one: Lookup) -> Iterator[int | Pages]:
    yield from (one.flight, one.request, one.first_page, len(one.digests), one.known_pages)
    yield from one.trailing_pages


def _fetched(one: Fetch) -> Iterator[int | Pages]:
    yield from (one.request, one.first_page, one.pages)
    yield from _stored(one)


def _stored(one: Fetch | Store) -> Iterator[int | Pages]:
    yield one.flight
    for piece in one.pieces:
        yield piece.first_page
        yield piece.pages


def _prefetched(one: Prefetched) -> tuple[object, ...]:
    return (
        one.request,
        one.first_page,
        one.asked_pages,
        one.found_pages,
        one.fetched_pages,
        one.reason,
    )


def _moved(one: Load | Backup) -> Iterator[int | Pages]:
    yield one.flight
    for copy in one.copies:
        yield copy.source
        yield copy.target


def _tables(one: Prefill) -> Iterator[int | Pages]:
    yield from (one.flight, one.request, one.start_token, one.end_token)
    yield from one.tables
    for slots in one.states:
        yield from (slots.source, slots.working, *slots.checkpoint_slots)
        for depth, page in slots.checkpoints:
            yield from (depth, page)


class Covered(NamedTuple):
    """How one kind of outcome is encoded. name, values: for an exact digest. code: for the replay
    digest, which covers `numbers` of the outcome, or without it the integers among the values."""

    name: bytes
    code: int
    values: Callable[[Any], tuple[object, ...]]
    numbers: Callable[[Any], Iterator[int | Pages]] | None = None


_OUTCOMES: dict[type, Covered] = {
    Load: Covered(b"Load", 14, lambda one: (one.flight, one.request, _copies(one.copies)), _moved),
    Backup: Covered(b"Backup", 15, lambda one: (one.flight, _copies(one.copies)), _moved),
    Prefill: Covered(b"Prefill", 16, _prefill, _tables),
    Matched: Covered(
        b"Matched", 17, lambda one: (one.request, one.device_pages, one.host_pages, one.depths)
    ),
    Admitted: Covered(b"Seated", 18, _admitted),
    Refused: Covered(b"Refused", 19, _refused),
    Granted: Covered(
        b"Granted", 20, lambda one: (one.request, one.tables[0], one.tables, _states(one.states))
    ),
    Cached: Covered(
        b"Cached",
        21,
        lambda one: (one.request, one.pages, one.tables[0], one.tables, _states(one.states)),
    ),
    Released: Covered(b"Released", 22, lambda one: (one.request,)),
    Restarted: Covered(b"Restarted", 23, lambda one: (one.request,)),
    Evicted: Covered(
        b"Evicted",
        24,
        lambda one: (one.tier, one.component, one.pages, one.last_use, one.demoted),
        lambda one: iter((int(one.tier), one.pages)),
    ),
    KvStored: Covered(b"KvStored", 25, lambda one: (one.tier, one.digests)),
    KvRemoved: Covered(b"KvRemoved", 26, lambda one: (one.tier, one.digests)),
    Lookup: Covered(b"Lookup", 34, _lookup, _looked_up),
    Fetch: Covered(
        b"Fetch",
        35,
        lambda one: (one.flight, one.request, one.first_page, _pieces(one.pieces), one.pages),
        _fetched,
    ),
    Store: Covered(b"Store", 36, lambda one: (one.flight, _pieces(one.pieces)), _stored),
    Delete: Covered(b"Delete", 37, lambda one: (one.flight,)),
    Prefetched: Covered(b"Prefetched", 38, _prefetched),
    Abandoned: Covered(b"Abandoned", 39, lambda one: (one.flight,)),
    StorageDetached: Covered(b"StorageDetached", 40, lambda one: ()),
    Pinned: Covered(b"Pinned", 44, lambda one: (one.pin, one.pages)),
    PinRefused: Covered(
        b"PinRefused", 45, lambda one: (one.pin, one.component, one.needed, one.available)
    ),
    Unpinned: Covered(b"Unpinned", 46, lambda one: (one.pin, one.pages)),
}
_EVENT_CODES: dict[type, int] = {
    Arrived: 1,
    MatchWanted: 2,
    AdmitWanted: 3,
    ContinueWanted: 4,
    PagesWanted: 5,
    Finished: 6,
    Aborted: 7,
    Retracted: 8,
    EvictWanted: 9,
    Flushed: 10,
    LoadDone: 11,
    BackupDone: 12,
    PrefillDone: 13,
    PrefetchLimitReached: 27,
    StorageAttached: 28,
    DetachWanted: 29,
    LookupDone: 30,
    FetchDone: 31,
    StoreDone: 32,
    DeleteDone: 33,
    TimePassed: 41,
    PinWanted: 42,
    UnpinWanted: 43,
}


def outcome_bytes(outcomes: Sequence[Outcome]) -> bytes:
    """The encoding of the outcomes of one event."""
    parts: list[bytes] = [b"%d!" % len(outcomes)]
    for outcome in outcomes:
        covered = _OUTCOMES[type(outcome)]
        parts.append(covered.name)
        _encode(parts, covered.values(outcome))
    return b"".join(parts)


def event_bytes(event: Event) -> bytes:
    """The encoding of an event: its code and all of its values."""
    parts: list[bytes] = [b"%d?" % _EVENT_CODES[type(event)]]
    _encode(parts, tuple(event))
    return b"".join(parts)


def add_words(words: array[int], event: Event, outcomes: Sequence[Outcome]) -> None:
    """Append the 64-bit words of an event and its outcomes for the replay digest."""
    first = event[0] if event else 0
    words.extend((_EVENT_CODES[type(event)], int(first), len(outcomes)))
    for outcome in outcomes:
        covered = _OUTCOMES[type(outcome)]
        words.append(covered.code)
        if covered.numbers is None:
            words.extend([value for value in covered.values(outcome) if type(value) is int])
            continue
        for value in covered.numbers(outcome):
            if isinstance(value, int):
                words.append(value)
            else:
                words.frombytes(value.tobytes())


def _encode(parts: list[bytes], value: object) -> None:
    """Append the encoding of a value. Different values never give the same bytes."""
    if isinstance(value, np.ndarray):
        parts += (b"a%d:" % len(value), np.ascontiguousarray(value, dtype="<i8").tobytes())
    elif isinstance(value, tuple):
        parts.append(b"(%d:" % len(value))
        for one in value:
            _encode(parts, one)
    elif isinstance(value, int):
        parts.append(b"i%d," % value)
    elif isinstance(value, bytes):
        parts += (b"b%d:" % len(value), value)
    else:
        assert isinstance(value, str), f"an outcome holds {type(value).__name__}"
        text = value.encode()
        parts += (b"s%d:" % len(text), text)
