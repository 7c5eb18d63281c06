"""A rolling digest of all decisions of a core.

This file lists which values of each outcome the digest covers, and encodes them so that different
values never give the same bytes. The digest is BLAKE2b. It covers no events, no times and nothing
of a device, so two runs with the same events have the same digest on any device.

The values are listed explicitly. So a recorded digest stays valid when a record of the core is
renamed or its fields change their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Copy,
    Evicted,
    Granted,
    KvRemoved,
    KvStored,
    Load,
    Matched,
    Outcome,
    Prefill,
    Refused,
    Released,
    Restarted,
    StateSlots,
)

_SHORT = 8
_REASONS = {"writing_back": "draining"}  # renamed reasons, with the name that digests still use


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
    return one.request, reason, one.needed, one.available, one.preempt, one.component


_COVERED: dict[type, tuple[bytes, Callable[[Any], tuple[object, ...]]]] = {
    Load: (b"Load", lambda one: (one.flight, one.request, _copies(one.copies))),
    Backup: (b"Backup", lambda one: (one.flight, _copies(one.copies))),
    Prefill: (b"Prefill", _prefill),
    Matched: (
        b"Matched",
        lambda one: (one.request, one.device_pages, one.host_pages, one.depths),
    ),
    Admitted: (b"Seated", _admitted),
    Refused: (b"Refused", _refused),
    Granted: (
        b"Granted",
        lambda one: (one.request, one.tables[0], one.tables, _states(one.states)),
    ),
    Cached: (
        b"Cached",
        lambda one: (one.request, one.pages, one.tables[0], one.tables, _states(one.states)),
    ),
    Released: (b"Released", lambda one: (one.request,)),
    Restarted: (b"Restarted", lambda one: (one.request,)),
    Evicted: (
        b"Evicted",
        lambda one: (one.tier, one.component, one.pages, one.last_use, one.demoted),
    ),
    KvStored: (b"KvStored", lambda one: (one.tier, one.digests)),
    KvRemoved: (b"KvRemoved", lambda one: (one.tier, one.digests)),
}


class Decisions:
    """The digest of one run. Call `add` with the outcomes of each event, in order."""

    __slots__ = ("_hash", "events")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.events = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of the next event, even if there are none."""
        parts: list[bytes] = [b"%d!" % len(outcomes)]
        for outcome in outcomes:
            name, covered = _COVERED[type(outcome)]
            parts.append(name)
            _encode(parts, covered(outcome))
        self._hash.update(b"".join(parts))
        self.events += 1

    def digest(self) -> str:
        """The digest of all decisions so far: 32 hexadecimal digits."""
        return self._hash.hexdigest()

    def short(self) -> str:
        """The first 8 digits of `digest`, enough to see where two runs differ."""
        return self._hash.hexdigest()[:_SHORT]


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
