"""A rolling digest of all decisions of a core.

Covers no events, no times and nothing of a device, so two runs with the same events have the same
digest on any device. How an outcome becomes bytes is in `encoding`.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from hicache.core.actions import Outcome

from .encoding import outcome_bytes

_SHORT = 8


class Decisions:
    """The digest of one run. Call `add` with the outcomes of each event, in order."""

    __slots__ = ("_hash", "events")

    def __init__(self) -> None:
        self._hash = blake2b(digest_size=16)
        self.events = 0

    def add(self, outcomes: Sequence[Outcome]) -> None:
        """Add the outcomes of the next event, even if there are none."""
        self._hash.update(outcome_bytes(outcomes))
        self.events += 1

    def digest(self) -> str:
        """The digest of all decisions so far: 32 hexadecimal digits."""
        return self._hash.hexdigest()

    def short(self) -> str:
        """The first 8 digits of `digest`, enough to see where two runs differ."""
        return self._hash.hexdigest()[:_SHORT]
