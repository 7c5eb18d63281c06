"""The decisions of a core in one number: a rolling digest of every outcome, without any time.

Must not live here: how an outcome becomes bytes (encoding), events, times or anything of a device,
so that two runs that were told the same events have the same digest whatever carried them out.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from hicache.core.actions import Outcome

from .encoding import outcome_bytes

_SHORT = 8


class Decisions:
    """Feed it the outcomes of one event after another."""

    __slots__ = ("_hash", "events")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.events = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """The outcomes of the next event; none is an answer, too."""
        self._hash.update(outcome_bytes(outcomes))
        self.events += 1

    def digest(self) -> str:
        """Of everything so far, in hexadecimal."""
        return self._hash.hexdigest()

    def short(self) -> str:
        """The first digits of `digest`: enough to see where two runs part."""
        return self._hash.hexdigest()[:_SHORT]
