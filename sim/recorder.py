"""The run in one number: a rolling digest of everything the core was told and answered, and when.

Lives here: the digest and two counters. An observer; it judges nothing. Must not live here: which
numbers of an outcome count (hicache.runtime.encoding).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b

from hicache.core.actions import Evicted, Outcome
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.encoding import add_words

_FLUSH_WORDS = 8192


class Recorder:
    """now_ns: where the time comes from. events: core events seen. evicted: pages by tier
    and component."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._hash = blake2b(digest_size=16)
        self._words = array("q")
        self.events = 0
        self.evicted: dict[tuple[Tier, str], int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Nothing to note before the answer is known."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.events += 1
        words = self._words
        words.append(self._now_ns())
        add_words(words, event, outcomes)
        for outcome in outcomes:
            if type(outcome) is Evicted:
                place = (outcome.tier, outcome.component)
                self.evicted[place] = self.evicted.get(place, 0) + len(outcome.pages)
        if len(words) > _FLUSH_WORDS:
            self._flush()

    def digest(self) -> str:
        """Of everything so far, in hexadecimal."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._words.tobytes())
        self._words = array("q")
