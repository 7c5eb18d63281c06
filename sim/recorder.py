"""The run in one number: a rolling digest of everything the core was told and answered, and when.

Lives here: the digest and two counters. An observer; it judges nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from hashlib import blake2b

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
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
)
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import Tier
from hicache.core.view import CoreView

_CODES: dict[type, int] = {
    kind: code
    for code, kind in enumerate(
        (
            *(
                Arrived,
                MatchWanted,
                AdmitWanted,
                ContinueWanted,
                PagesWanted,
                Finished,
                Aborted,
                Retracted,
            ),
            *(EvictWanted, Flushed, LoadDone, BackupDone, PrefillDone),
            *(Load, Backup, Prefill, Matched, Admitted, Refused, Granted, Cached, Released),
            *(Restarted, Evicted, KvStored, KvRemoved),
        ),
        start=1,
    )
}
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
        first = event[0] if event else 0
        words.extend((self._now_ns(), _CODES[type(event)], int(first), len(outcomes)))
        for outcome in outcomes:
            kind = type(outcome)
            words.append(_CODES[kind])
            if kind is Load or kind is Backup:
                words.append(outcome.flight)  # type: ignore[union-attr]
                for copy in outcome.copies:  # type: ignore[union-attr]
                    words.frombytes(copy.source.tobytes())
                    words.frombytes(copy.target.tobytes())
            elif isinstance(outcome, Evicted):
                place, count = (outcome.tier, outcome.component), len(outcome.pages)
                self.evicted[place] = self.evicted.get(place, 0) + count
                words.append(int(outcome.tier))
                words.frombytes(outcome.pages.tobytes())
            elif isinstance(outcome, Prefill):
                words.extend(
                    (outcome.flight, outcome.request, outcome.start_token, outcome.end_token)
                )
                for table in outcome.tables:
                    words.frombytes(table.tobytes())
                for slots in outcome.states:
                    words.extend((slots.source, slots.working, *slots.checkpoint_slots))
                    words.extend(number for pair in slots.checkpoints for number in pair)
            elif isinstance(outcome, Refused):
                words.extend((outcome.request, outcome.needed, outcome.available, outcome.preempt))
            else:
                words.extend([field for field in outcome if type(field) is int])
        if len(words) > _FLUSH_WORDS:
            self._flush()

    def digest(self) -> str:
        """Of everything so far, in hexadecimal."""
        self._flush()
        return self._hash.hexdigest()

    def _flush(self) -> None:
        self._hash.update(self._words.tobytes())
        self._words = array("q")
