"""Record the run of a core, and replay the recording with a new core.

The recorder is an observer of the driver. The replay names the first event whose decisions differ.
Does not define the format; see `recording_format`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from hicache.core.actions import Outcome, StorageAction, Transfer
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Event, Reply
from hicache.core.types import FlightId
from hicache.core.view import CoreView

from .config_document import written
from .decisions import Decisions
from .driver import Driver, Executor
from .recording_format import HEADER, MAX_LINE_BYTES, VERSION, Recording, Step, arguments

CHECK_EVERY = 256


class Recorder:
    """An observer that writes a recording. Close it, because a file without its end is truncated.

    write: called with each whole line. now_ns: the clock for `t`, in nanoseconds. made: a
    description of the program, written to the first line.
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
        self._put({HEADER: VERSION, "config": written(config), "made": made or {}})

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
        """Note that all queued transfers go to the device now, as one batch per direction. Writes
        nothing if there was no event since the last start."""
        if self._started_at != self.decisions.events:
            self._started_at = self.decisions.events
            self._put({"op": "start", "t": self._now_ns()})

    def close(self) -> str:
        """Write the end. Returns the digest of all decisions."""
        self._put(self._state("end"))
        return self.decisions.digest()

    def _state(self, op: str) -> dict[str, Any]:
        return {"op": op, "events": self.decisions.events, "digest": self.decisions.digest()}

    def _put(self, record: dict[str, Any]) -> None:
        line = json.dumps(record, separators=(",", ":")) + "\n"
        if len(line) > MAX_LINE_BYTES:
            raise CallerError(
                f"recording: expected lines of at most {MAX_LINE_BYTES} bytes, found one of "
                f"{len(line)} for a request's key; record shorter requests or larger pages"
            )
        self._write(line)


class DivergedError(AssertionError):
    """A replay made other decisions than the recording has."""

    exit_code = 16


class Follower:
    """Feeds a recording to a new core, one event at a time, and compares its decisions."""

    def __init__(self, recording: Recording, executor: Executor) -> None:
        self._recording = recording
        self.driver = Driver(Core(recording.config), executor)
        self.decisions = Decisions()
        self._digests = dict(recording.checks)

    def feed(self, step: Step) -> list[Outcome]:
        """Feed one event and return the core's outcomes. Raises DivergedError if they differ from
        the recording, and CallerError if the core refuses the event."""
        assert step.event is not None
        try:
            outcomes = self.driver.feed(step.event)
        except CallerError as error:
            raise CallerError(
                f"{self._recording.path}:{step.line}: expected an event that the core can take, "
                f"found {type(step.event).__name__} ({error}); record it again"
            ) from None
        self.decisions.add(outcomes)
        number = self.decisions.events
        wanted = self._digests.get(number)
        if self.decisions.short() != step.short or (
            wanted is not None and wanted != self.decisions.digest()
        ):
            answers = ", ".join(type(outcome).__name__ for outcome in outcomes) or "nothing"
            raise DivergedError(
                f"{self._recording.path}:{step.line}: event {number} "
                f"({type(step.event).__name__}) is the first whose decisions differ: the recording "
                f"has digest {step.short}, this core {self.decisions.short()}, answering {answers}"
            )
        return outcomes

    def end(self) -> str:
        """The digest of all decisions. Call it after the last event. Raises DivergedError if it is
        not that of the recording."""
        found = self.decisions.digest()
        if found != self._recording.digest:
            raise DivergedError(
                f"{self._recording.path}: the recording ends with digest "
                f"{self._recording.digest}, this core with {found}"
            )
        return found


class _Nowhere:
    """An executor that does nothing: in a replay, the replies are in the recording."""

    def submit(self, action: Transfer | StorageAction) -> None:
        """Does nothing."""

    def abandon(self, flight: FlightId) -> None:
        """Does nothing."""

    def start(self) -> None:
        """Does nothing."""

    def poll(self) -> list[Reply]:
        return []


def replay(recording: Recording) -> str:
    """Feed the events to a new core. Returns the digest of its decisions, as recorded.

    Raises DivergedError that names the first event whose decisions differ.
    """
    follower = Follower(recording, _Nowhere())
    for step in recording.steps:
        if step.event is not None:
            follower.feed(step)
    return follower.end()
