"""The trail of a run: a rolling digest of every event and answer, with checkpoints.

Must not live here: what the work is, or who compares two trails.

A trail ends with the digest of everything. Two trails that differ part at one checkpoint, so the
first divergent event lies in the window before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.core.view import CoreView

CHECKPOINT_EVERY = 256


class Trail:
    """An observer that digests every event and every outcome."""

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self._events = 0
        self.checkpoints: list[str] = []

    def on_event(self, event: Event, view: CoreView) -> None:
        self._add(event)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        for item in outcomes:
            self._add(item)
        self._events += 1
        if self._events % CHECKPOINT_EVERY == 0:
            self.checkpoints.append(self._digest.hexdigest())

    def end(self) -> list[str]:
        """All checkpoints and the digest of the whole."""
        return [*self.checkpoints, self._digest.hexdigest()]

    def _add(self, item: Any) -> None:
        self._digest.update(type(item).__name__.encode())
        for value in item:
            self._add_value(value)

    def _add_value(self, value: Any) -> None:
        if isinstance(value, np.ndarray):
            self._digest.update(np.ascontiguousarray(value, dtype="<i8").tobytes())
        elif isinstance(value, bytes):
            self._digest.update(value)
        elif isinstance(value, tuple):
            self._digest.update(b"(%d" % len(value))
            for one in value:
                self._add_value(one)
        else:
            self._digest.update(repr(value).encode())
        self._digest.update(b",")
