"""The decisions of a core in one number: a rolling digest of every outcome, without any time.

Lives here: an exact, framed encoding of outcomes and its BLAKE2b. Must not live here: events, times
or anything of a device, so that two runs that were told the same events have the same digest
whatever carried them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from hicache.core.actions import Outcome

_SHORT = 8


class Decisions:
    """Feed it the outcomes of one event after another."""

    __slots__ = ("_hash", "events")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.events = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """The outcomes of the next event; none is an answer, too."""
        parts: list[bytes] = [b"%d!" % len(outcomes)]
        for outcome in outcomes:
            parts.append(type(outcome).__name__.encode())
            _encode(parts, outcome)
        self._hash.update(b"".join(parts))
        self.events += 1

    def digest(self) -> str:
        """Of everything so far, in hexadecimal."""
        return self._hash.hexdigest()

    def short(self) -> str:
        """The first digits of `digest`: enough to see where two runs part."""
        return self._hash.hexdigest()[:_SHORT]


def _encode(parts: list[bytes], value: object) -> None:
    """Append a value so that no two different values give the same bytes."""
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
