"""Record the run of a core, and replay the recording with a new core.

A recording has all events that a core received, in order, with digests of its decisions. It is a
file of JSON lines; the first has the configuration and a description of the program that made it:

    {"hicache_recording": 3, "config": {...}, "made": {...}}
    {"op": "Arrived", "t": 1200, "args": [0, [8, "", "AAAAAAAAAAA="], 64, 0], "d": "5f0c11d2"}
    {"op": "start", "t": 1300}                           queued transfers go to the device
    {"op": "check", "events": 256, "digest": "..."}      digest of the decisions so far
    {"op": "end", "events": 300, "digest": "..."}        without it, the recording is truncated

A key is [stride, namespace, base64 of its rows]. `t` is a time in nanoseconds, on which no decision
depends. `d` has the first digits of the digest after that event, so that a replay can name the
first event whose decisions differ.
"""

import base64
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import fields

from hicache.core import events
from hicache.core.actions import HostTransfer, Outcome, StorageAction
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Event, Reply
from hicache.core.types import MOST_PRIORITY, Key, Tier, TransferId
from hicache.core.view import CoreView

from .config_document import config_of, written
from .driver import Driver, Executor
from .encoding import Decisions

CHECK_EVERY = 256
MAX_LINE_BYTES = 64 << 20
_MOST_PAGES = 1 << 24  # limits the memory for which one line of a file can ask

_Integer = Annotated[int, Meta(ge=0, lt=1 << 62)]
_Priority = Annotated[int, Meta(ge=-MOST_PRIORITY, le=MOST_PRIORITY)]
# By the type of an argument.
_SHAPES: dict[Any, Any] = {
    int: _Integer,
    Tier: Literal[0, 1],
    Key: tuple[Annotated[int, Meta(ge=1)], str, bytes],
}
# How many of the last arguments are left out if they are defaults.
_LEFT_OUT: dict[type, int] = {events.Arrived: 1, events.Flushed: 1}


class _Header(Struct, forbid_unknown_fields=True):
    hicache_recording: Literal[3]
    config: dict[str, Any]
    made: dict[str, Any]


class _EventLine(Struct, forbid_unknown_fields=True):
    op: str
    t: _Integer
    args: list[Any]
    d: Annotated[str, Meta(pattern="^[0-9a-f]{8}$")]


class _StartLine(Struct, forbid_unknown_fields=True):
    op: str
    t: _Integer


class _CheckLine(Struct, forbid_unknown_fields=True):
    op: str
    events: int
    digest: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]


_LINES: dict[object, Any] = {"start": _StartLine, "check": _CheckLine, "end": _CheckLine}


class _EventKind:
    """The arguments of one kind of event as types."""

    def __init__(self, kind: Any) -> None:
        hints = get_type_hints(kind)
        self.make = kind
        self.kinds = tuple(hints.values())
        shapes = [
            _Priority if name == "priority" else _SHAPES.get(hint, hint)
            for name, hint in hints.items()
        ]
        self.shape: Any = tuple[tuple(shapes)]  # type: ignore[misc]
        self.defaults = [field.default for field in fields(kind)]
        self.least = len(hints) - _LEFT_OUT.get(kind, 0)

    def event(self, args: list[Any]) -> Event:
        if len(args) >= self.least:
            args = args + self.defaults[len(args) :]
        values = msgspec.convert(args, self.shape)
        return self.make(*map(_from_json, self.kinds, values))  # type: ignore[no-any-return]


_KINDS = {kind.__name__: _EventKind(kind) for kind in get_args(Event)}


def _from_json(kind: Any, value: Any) -> object:
    if kind is Tier:
        return Tier(value)
    if kind is not Key:
        return value
    stride, namespace, raw = value
    if len(raw) % stride:
        raise ValueError(f"a key of {len(raw)} bytes is no whole rows of {stride}")
    return Key(raw, stride, namespace)


def as_json(value: object) -> object:
    if isinstance(value, Key):
        return [value.stride, value.namespace, base64.b64encode(value.raw).decode()]
    return int(value) if isinstance(value, Tier) else value


def arguments(event: Event) -> list[object]:
    """The arguments of an event in the form that a line has."""
    values = list(event)
    for _ in range(_LEFT_OUT.get(type(event), 0)):
        if values[-1] == _KINDS[type(event).__name__].defaults[len(values) - 1]:
            values.pop()
    return [as_json(value) for value in values]


# -- read


@dataclass(frozen=True, slots=True)
class Step:
    """An event, or a start of the queued transfers (event: None). short: the first digits of the
    digest after the event. line: its number in the file."""

    event: Event | None
    time_ns: int
    short: str
    line: int


@dataclass(frozen=True, slots=True)
class Recording:
    """A whole recording. made: the description of the program that made it. checks: (number of
    events, digest) at intervals; the last is the end."""

    path: str
    config: Config
    made: dict[str, Any]
    steps: tuple[Step, ...]
    checks: tuple[tuple[int, str], ...]

    @property
    def digest(self) -> str:
        return self.checks[-1][1]

    @property
    def events(self) -> int:
        return self.checks[-1][0]


def parse(path: str, lines: Iterable[bytes]) -> Recording:
    """The recording in these lines. Raises CallerError that names the line of the first error."""
    config, made, ended, number = None, {}, False, 0
    steps: list[Step] = []
    checks: list[tuple[int, str]] = []
    counted = 0
    for number, line in enumerate(lines, 1):
        try:
            if ended or len(line) > MAX_LINE_BYTES:
                raise ValueError("a line behind the end, or a line that is too long")
            if config is None:
                header = msgspec.json.decode(line, type=_Header)
                config, made = _config_of(header.config), header.made
                continue
            record = msgspec.json.decode(line, type=dict[str, Any])
            op = record.get("op")
            fields = msgspec.convert(record, _LINES.get(op, _EventLine))
            if isinstance(fields, _CheckLine):
                if fields.events != counted:
                    raise ValueError(f"events: expected {counted}, found {fields.events}")
                checks.append((counted, fields.digest))
                ended = op == "end"
            elif isinstance(fields, _StartLine):
                steps.append(Step(None, fields.t, "", number))
            elif fields.op not in _KINDS:
                raise ValueError(f"op: expected one of {', '.join(_KINDS)}, found {op!r:.60}")
            else:
                event = _KINDS[fields.op].event(fields.args)
                steps.append(Step(event, fields.t, fields.d, number))
                counted += 1
        except (msgspec.MsgspecError, CallerError, ValueError, RecursionError) as error:
            raise CallerError(f"{path}:{number}: no recording: {error}; record it again") from None
    if config is None or not ended:
        raise CallerError(f"{path}:{number + 1}: a truncated recording; record it again")
    return Recording(path, config, made, tuple(steps), tuple(checks))


def _config_of(document: dict[str, Any]) -> Config:
    """The configuration, of which a core can be made."""
    values = {
        key: tuple(items) if type(items) is list else items for key, items in document.items()
    }
    try:
        config = config_of(values)
        if sum((*config.device_pages, *config.host_pages)) > _MOST_PAGES:
            raise CallerError(f"expected pools of {_MOST_PAGES} pages together at most")
        Core(config)
    except (TypeError, OverflowError, MemoryError) as error:
        raise CallerError(f"config: {error}") from None
    return config


# -- record and replay


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
        self._put({"hicache_recording": 3, "config": written(config), "made": made or {}})

    def on_event(self, event: Event, view: CoreView) -> None:
        self._time_ns = self._now_ns()

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.decisions.add(outcomes)
        op, args, short = type(event).__name__, arguments(event), self.decisions.short()
        self._put({"op": op, "t": self._time_ns, "args": args, "d": short})
        if not self.decisions.events % CHECK_EVERY:
            self._put_check("check")

    def started(self) -> None:
        """Note that all queued transfers go to the device now, as one batch per direction. Writes
        nothing if there was no event since the last start."""
        if self._started_at != self.decisions.events:
            self._started_at = self.decisions.events
            self._put({"op": "start", "t": self._now_ns()})

    def close(self) -> str:
        """Write the end. Returns the digest of all decisions."""
        self._put_check("end")
        return self.decisions.digest()

    def _put_check(self, op: str) -> None:
        digest = self.decisions.digest()
        self._put({"op": op, "events": self.decisions.events, "digest": digest})

    def _put(self, record: dict[str, Any]) -> None:
        self._write(json.dumps(record, separators=(",", ":")) + "\n")


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
        where, name = f"{self._recording.path}:{step.line}", type(step.event).__name__
        try:
            outcomes = self.driver.feed(step.event)
        except CallerError as error:
            raise CallerError(f"{where}: {name}: {error}; record it again") from None
        self.decisions.add(outcomes)
        number, short = self.decisions.events, self.decisions.short()
        digest = self._digests.get(number)
        if short != step.short or (digest is not None and digest != self.decisions.digest()):
            answers = ", ".join(type(outcome).__name__ for outcome in outcomes) or "nothing"
            raise DivergedError(
                f"{where}: event {number} ({name}) is the first whose decisions differ: the "
                f"recording has digest {step.short}, this core {short}, answering {answers}"
            )
        return outcomes

    def end(self) -> str:
        """The digest of all decisions. Call it after the last event. Raises DivergedError if it is
        not that of the recording."""
        digest = self.decisions.digest()
        if digest != self._recording.digest:
            raise DivergedError(
                f"{self._recording.path}: the recording ends with digest "
                f"{self._recording.digest}, this core with {digest}"
            )
        return digest


class _Nowhere:
    """An executor that does nothing: in a replay, the replies are in the recording."""

    def submit(self, action: HostTransfer | StorageAction) -> None:
        """Does nothing."""

    def abandon(self, transfer: TransferId) -> None:
        """Does nothing."""

    def start(self) -> None:
        """Does nothing."""

    def poll(self) -> list[Reply]:
        return []


def replay(recording: Recording) -> str:
    """Feed the events to a new core. Returns the digest of its decisions, as recorded.

    Raises DivergedError that names the first event whose decisions differ."""
    follower = Follower(recording, _Nowhere())
    for step in recording.steps:
        if step.event is not None:
            follower.feed(step)
    return follower.end()
