"""A running digest of all events, outcomes and times of a run.

Which numbers of an outcome enter the digest is decided in hicache.runtime.encoding.
"""

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
    """now_ns: returns the current time. without: outcomes that do not enter the digest. events:
    number of core events. evicted: pages by tier and component."""

    def __init__(self, now_ns: Callable[[], int], without: tuple[type, ...] = ()) -> None:
        self._now_ns = now_ns
        self._without = without
        self._hash = blake2b(digest_size=16)
        self._words = array("q")
        self.events = 0
        self.evicted: dict[tuple[Tier, str], int] = {}

    def on_event(self, event: Event, view: CoreView) -> None:
        """Does nothing: an event is recorded together with its outcomes."""

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.events += 1
        words = self._words
        words.append(self._now_ns())
        if self._without:
            outcomes = [outcome for outcome in outcomes if type(outcome) not in self._without]
        add_words(words, event, outcomes)
        for outcome in outcomes:
            if type(outcome) is Evicted:
                place = (outcome.tier, outcome.component)
                self.evicted[place] = self.evicted.get(place, 0) + len(outcome.pages)
        if len(words) > _FLUSH_WORDS:
            self._flush()

    def digest(self) -> str:
        """The digest of everything so far, in hexadecimal."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._words.tobytes())
        self._words = array("q")
