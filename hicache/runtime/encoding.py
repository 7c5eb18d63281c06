"""The encoding of outcomes and events as bytes, or as numbers, and the digest of all decisions.

Different values never give the same bytes. No times and nothing of a device are covered, so two
runs with the same events have the same digest on any device.

A record needs no line here. The tables keep recorded digests valid: the codes and names of records
that were there before, and those whose values were covered in another order or in part.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, get_args
from zlib import crc32

import numpy as np

from hicache.core.actions import (
    Backup,
    Cached,
    Evicted,
    Fetch,
    Granted,
    Load,
    Lookup,
    Outcome,
    Prefill,
    Refused,
    Store,
)
from hicache.core.events import Event
from hicache.core.types import Pages

_REASONS = {"writing_back": "draining"}  # renamed reasons, with the name that digests still use
_NAMES = {"Admitted": b"Seated"}  # renamed records, likewise
_WAITS = ("fetching", "detaching")  # reasons whose `after` a digest covers
_NUMBERED = (  # from 1; of a record that came later, the code is a checksum of its name
    "Arrived MatchWanted AdmitWanted ContinueWanted PagesWanted Finished Aborted Retracted "
    "EvictWanted Flushed LoadDone BackupDone PrefillDone Load Backup Prefill Matched Admitted "
    "Refused Granted Cached Released Restarted Evicted KvStored KvRemoved PrefetchLimitReached "
    "StorageAttached DetachWanted LookupDone FetchDone StoreDone DeleteDone Lookup Fetch Store "
    "Delete Prefetched Abandoned StorageDetached TimePassed PinWanted UnpinWanted Pinned "
    "PinRefused Unpinned"
)
_GIVEN = {name: code for code, name in enumerate(_NUMBERED.split(), 1)}
_CODES: dict[type, int] = {
    kind: _GIVEN.get(kind.__name__, crc32(kind.__name__.encode()))
    for kind in (*get_args(Event), *get_args(Outcome))
}


def _prefill(prefill: Prefill) -> tuple[object, ...]:
    until, passed = prefill[:4], (prefill.after, prefill.completes_prompt)
    return *until, prefill.tables[0], *passed, prefill.tables, prefill.states


def _refused(refused: Refused) -> tuple[object, ...]:
    reason = _REASONS.get(refused.reason, refused.reason)
    after = (refused.after,) if reason in _WAITS else ()
    return (
        refused.request,
        reason,
        refused.needed,
        refused.available,
        refused.retract,
        refused.component,
        *after,
    )


def _looked_up(lookup: Lookup) -> Iterator[int | Pages]:
    yield from (
        lookup.transfer,
        lookup.request,
        lookup.first_page,
        len(lookup.digests),
        lookup.known_pages,
    )
    yield from lookup.trailing_pages


def _fetched(fetch: Fetch) -> Iterator[int | Pages]:
    yield from (fetch.request, fetch.first_page, fetch.pages)
    yield from _stored(fetch)


def _stored(fetch: Fetch | Store) -> Iterator[int | Pages]:
    yield fetch.transfer
    for piece in fetch.pieces:
        yield piece.first_page
        yield piece.pages


def _moved(load: Load | Backup) -> Iterator[int | Pages]:
    yield load.transfer
    for copy in load.copies:
        yield copy.source
        yield copy.target


def _tables(prefill: Prefill) -> Iterator[int | Pages]:
    yield from (prefill.transfer, prefill.request, prefill.start_token, prefill.end_token)
    yield from prefill.tables
    for slots in prefill.states:
        yield from (slots.source, slots.working, *slots.checkpoint_slots)
        for depth, page in slots.checkpoints:
            yield from (depth, page)


# For an exact digest: the values of records that are not their fields.
_VALUES: dict[type, Callable[[Any], tuple[object, ...]]] = {
    Prefill: _prefill,
    Refused: _refused,
    Granted: lambda item: (item.request, item.tables[0], item.tables, item.states),
    Cached: lambda item: (item.request, item.pages, item.tables[0], item.tables, item.states),
}
# For the replay digest: the numbers of records that are not the integers among their values.
_NUMBERS: dict[type, Callable[[Any], Iterator[int | Pages]]] = {
    Load: _moved,
    Backup: _moved,
    Prefill: _tables,
    Lookup: _looked_up,
    Fetch: _fetched,
    Store: _stored,
}


def _values(prefill: Outcome) -> tuple[object, ...]:
    covered = _VALUES.get(type(prefill))
    return tuple(prefill) if covered is None else covered(prefill)


def outcome_bytes(outcomes: Sequence[Outcome]) -> bytes:
    """The encoding of the outcomes of one event."""
    parts: list[bytes] = [b"%d!" % len(outcomes)]
    for outcome in outcomes:
        name = type(outcome).__name__
        parts.append(_NAMES.get(name) or name.encode())
        _encode(parts, _values(outcome))
    return b"".join(parts)


def event_bytes(event: Event) -> bytes:
    """The encoding of an event: its code and all of its values."""
    parts: list[bytes] = [b"%d?" % _CODES[type(event)]]
    _encode(parts, tuple(event))
    return b"".join(parts)


def add_words(words: array[int], event: Event, outcomes: Sequence[Outcome]) -> None:
    """Append the 64-bit words of an event and its outcomes for the replay digest."""
    first = next(iter(event), 0)
    words.extend((_CODES[type(event)], int(first), len(outcomes)))
    for outcome in outcomes:
        words.append(_CODES[type(outcome)])
        if type(outcome) is Evicted:  # the most frequent
            words.append(outcome.tier)
            words.frombytes(outcome.pages.tobytes())
            continue
        numbers = _NUMBERS.get(type(outcome))
        if numbers is None:
            words.extend([value for value in _values(outcome) if type(value) is int])
            continue
        for value in numbers(outcome):
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
        for item in value:
            _encode(parts, item)
    elif isinstance(value, int):
        parts.append(b"i%d," % value)
    elif isinstance(value, bytes):
        parts += (b"b%d:" % len(value), value)
    else:
        assert isinstance(value, str), f"an outcome holds {type(value).__name__}"
        text = value.encode()
        parts += (b"s%d:" % len(text), text)


class Decisions:
    """A rolling digest of one run. Call `add` with the outcomes of each event, in order."""

    __slots__ = ("_hash", "events")

    def __init__(self) -> None:
        self._hash: Any = blake2b(digest_size=16)
        self.events = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of the next event, even if there are none."""
        self._hash.update(outcome_bytes(outcomes))
        self.events += 1

    def digest(self) -> str:
        """The digest of all decisions so far: 32 hexadecimal digits."""
        return str(self._hash.hexdigest())

    def short(self) -> str:
        """The first 8 digits of `digest`, enough to see where two runs differ."""
        return self.digest()[:8]
