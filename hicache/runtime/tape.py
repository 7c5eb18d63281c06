"""Tapes: recording a core's run, and replaying it into a fresh core.

Lives here: a recorder (an observer of the driver) and the replay, which names the first event whose
decisions differ. Must not live here: the format (tape_format), who produced the events, or how long
anything took.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from hicache.core.actions import Backup, Load, Outcome
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Event, Reply
from hicache.core.view import CoreView

from .decisions import Decisions
from .driver import Driver, Executor
from .tape_format import MAX_LINE_BYTES, VERSION, Entry, Tape, arguments

CHECK_EVERY = 256


class Recorder:
    """An observer that writes a tape. Close it: a tape without its end counts as truncated.

    write: takes whole lines. now_ns: where `t` comes from. made: what to say of the maker.
    """

    def __init__(
        self,
        config: Config,
        write: Callable[[str], object],
        now_ns: Callable[[], int] = lambda: 0,
        made: dict[str, Any] | None = None,
    ) -> None:
        self._write = write
        self._now_ns = now_ns
        self.decisions = Decisions()
        self._time_ns = 0
        self._started_at = 0
        self._put({"hicache_tape": VERSION, "config": asdict(config), "made": made or {}})

    def on_event(self, event: Event, view: CoreView) -> None:
        self._time_ns = self._now_ns()

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.decisions.add(outcomes)
        self._put(
            {
                "op": type(event).__name__,
                "t": self._time_ns,
                "args": arguments(event),
                "d": self.decisions.short(),
            }
        )
        if not self.decisions.events % CHECK_EVERY:
            self._put(self._state("check"))

    def started(self) -> None:
        """Everything that is queued goes to the device now: what decides which transfers go out as
        one batch. Noted unless nothing has happened since the start before."""
        if self._started_at != self.decisions.events:
            self._started_at = self.decisions.events
            self._put({"op": "start", "t": self._now_ns()})

    def close(self) -> str:
        """Write the end; the digest of all decisions."""
        self._put(self._state("end"))
        return self.decisions.digest()

    def _state(self, op: str) -> dict[str, Any]:
        return {"op": op, "events": self.decisions.events, "digest": self.decisions.digest()}

    def _put(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")) + "\n"
        if len(line) > MAX_LINE_BYTES:
            raise CallerError(
                f"tape: expected lines of at most {MAX_LINE_BYTES} bytes, found one of {len(line)} "
                "for a request's key; record shorter requests or larger pages"
            )
        self._write(line)


class DivergedError(AssertionError):
    """A replay decided otherwise than the tape says."""

    exit_code = 16


class Follower:
    """Feeds a tape to a fresh core, one event at a time, and compares each decision."""

    def __init__(self, tape: Tape, executor: Executor) -> None:
        self._tape = tape
        self.driver = Driver(Core(tape.config), executor)
        self.decisions = Decisions()
        self._digests = dict(tape.checks)

    def feed(self, entry: Entry) -> list[Outcome]:
        """What the core answers. Raises DivergedError that names the event where it differs."""
        assert entry.event is not None
        try:
            outcomes = self.driver.feed(entry.event)
        except CallerError as error:
            raise CallerError(
                f"{self._tape.path}:{entry.line}: expected an event that the core can take, "
                f"found {type(entry.event).__name__} ({error}); record the tape again"
            ) from None
        self.decisions.add(outcomes)
        number = self.decisions.events
        wanted = self._digests.get(number)
        if self.decisions.short() != entry.short or (
            wanted is not None and wanted != self.decisions.digest()
        ):
            answers = ", ".join(type(outcome).__name__ for outcome in outcomes) or "nothing"
            raise DivergedError(
                f"{self._tape.path}:{entry.line}: event {number} "
                f"({type(entry.event).__name__}) is the first whose decisions differ: the tape "
                f"has digest {entry.short}, this core {self.decisions.short()}, answering {answers}"
            )
        return outcomes

    def end(self) -> str:
        """The digest of all decisions, once the last event was fed."""
        found = self.decisions.digest()
        if found != self._tape.digest:
            raise DivergedError(
                f"{self._tape.path}: the tape ends with digest {self._tape.digest}, this core with "
                f"{found}"
            )
        return found


class _Nowhere:
    """Carries out nothing: on a replay the replies are on the tape."""

    def submit(self, action: Load | Backup) -> None:
        """The tape has its reply."""

    def start(self) -> None:
        """Nothing is queued."""

    def poll(self) -> list[Reply]:
        return []


def replay(tape: Tape) -> str:
    """Feed a fresh core the tape's events; the digest of its decisions, equal to the tape's.

    Raises DivergedError that names the first event whose decisions differ.
    """
    follower = Follower(tape, _Nowhere())
    for entry in tape.entries:
        if entry.event is not None:
            follower.feed(entry)
    return follower.end()
