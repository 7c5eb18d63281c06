"""Which functions and lines of the project ran for each event of a sequence.

Lives here: tracing, and assigning what ran to events. What runs between two events, such as the
issue of a transfer, counts for the first. Does not judge what ran (see suspects).

A failing event is compared with those of sequences drawn for the tape's own settings. A sequence
that fails, too, has one more failing event: the first one after which the core differs from the
specification, or else its last. What is wrong runs in all of those, and rarely elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any, NamedTuple

from hicache.core.actions import Outcome
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.view import CoreView

from ..fuzz import play
from ..fuzz.generate import weights_of
from ..fuzz.hand import Hand
from ..fuzz.ops.base import Operation
from ..fuzz.swarm import draw_swarm
from ..fuzz.tapes.tape import Tape
from ..source_lines import DRIVER, SourceLine, function_of, line_in, line_of, tracing
from .difference import Comparison

CORE, RUNTIME = "hicache/core/", ("hicache/runtime/", "hicache/devices/")
_HANDLE = line_of(Core.handle)  # before a bug stands in for it
_NEVER, _DOOR, _ANSWERING, _ALWAYS = range(4)


class Ran(NamedTuple):
    """What ran for one event. event: its kind. lines: the functions that ran, by their first line,
    each with its lines that ran. callers: for each function the line that called it last.
    """

    event: str
    lines: dict[SourceLine, frozenset[SourceLine]]
    callers: dict[SourceLine, SourceLine]


class Coverage:
    """Observes the core of a hand. The core counts within `Core.handle`, so that what a check reads
    does not; the runtime counts always.
    """

    def __init__(self) -> None:
        self._events: list[str] = []
        self._ran: list[Ran] = []
        self._lines: set[tuple[CodeType, int]] = set()
        self._callers: dict[CodeType, tuple[CodeType, int]] = {}
        self._core: Core | None = None
        self._answering = 0  # how deep
        self._when: dict[CodeType, int] = {}
        self._known: dict[tuple[CodeType, int], tuple[SourceLine | None, SourceLine | None]] = {}

    def follow(self, hand: Hand) -> None:
        self._core = hand.core
        hand.observe(self)

    def on_event(self, event: Event, view: CoreView) -> None:
        self._close()
        self._events.append(type(event).__name__)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        """What runs until the next event still counts for this one."""

    def tracing(self) -> AbstractContextManager[None]:
        """Within the block, notes what runs."""
        return tracing(self._call)

    def ran(self) -> list[Ran]:
        """What ran for each event so far, in order."""
        self._close()
        return self._ran

    def _call(self, frame: FrameType, what: str, value: Any) -> Any:
        code = frame.f_code
        when = self._when.get(code)
        if when is None:
            when = self._when[code] = _when(code)
        if when == _NEVER or (when == _ANSWERING and not self._answering):
            return None
        if when == _DOOR and frame.f_locals.get(code.co_varnames[0]) is not self._core:
            return None  # another core, which a check or another rank has
        self._note_caller(frame)
        if when == _DOOR:
            self._answering += 1
            return self._door
        self._lines.add((code, frame.f_lineno))
        return self._line

    def _note_caller(self, frame: FrameType) -> None:
        above = frame.f_back
        while above is not None and self._when.get(above.f_code, _NEVER) == _NEVER:
            above = above.f_back
        if above is not None:
            self._callers[frame.f_code] = above.f_code, above.f_lineno

    def _door(self, frame: FrameType, what: str, value: Any) -> Any:
        self._answering -= what == "return"
        self._line(frame, what, value)
        return self._door

    def _line(self, frame: FrameType, what: str, value: Any) -> Any:
        if what == "line":
            self._lines.add((frame.f_code, frame.f_lineno))
        return self._line

    def _close(self) -> None:
        """Assigns what ran to the last event."""
        if len(self._events) > len(self._ran):
            found: dict[SourceLine, set[SourceLine]] = {}
            for at in self._lines:
                line, function = self._named(at)
                if line is not None and function is not None:
                    found.setdefault(function, set()).add(line)
            lines = {function: frozenset(lines) for function, lines in found.items()}
            self._ran.append(Ran(self._events[-1], lines, self._called()))
        self._lines.clear()
        self._callers.clear()

    def _called(self) -> dict[SourceLine, SourceLine]:
        """For each function the line of another one that called it."""
        found: dict[SourceLine, SourceLine] = {}
        for code, at in self._callers.items():
            function = self._named((code, code.co_firstlineno))[1]
            line, caller = self._named(at)
            if function is not None and line is not None and caller not in (None, function):
                found[function] = line
        return found

    def _named(self, at: tuple[CodeType, int]) -> tuple[SourceLine | None, SourceLine | None]:
        """A line, and its function."""
        if at not in self._known:
            line = line_in(*at)
            self._known[at] = line, None if line is None else function_of(line)
        return self._known[at]


def functions_of(lines: Sequence[SourceLine]) -> tuple[SourceLine, ...]:
    """The functions of these lines, each once, in order."""
    found = [function_of(line) for line in lines]
    return tuple(dict.fromkeys(one for one in found if one is not None))


def _when(code: CodeType) -> int:
    """When a function counts, by its file."""
    line = line_in(code, code.co_firstlineno)
    if line is None or line.file == DRIVER:
        return _NEVER
    if line.file.startswith(RUNTIME):
        return _ALWAYS
    function = function_of(line)
    if function is not None and function.file.startswith(RUNTIME):
        return _ALWAYS
    if function == _HANDLE:
        return _DOOR
    return _ANSWERING if function is not None and function.file.startswith(CORE) else _NEVER


# -- events to compare with

OPERATIONS = 40
TRACED = 3  # sequences that are traced in any case
MOST, ENOUGH = 16, 6  # sequences; those that fail


class Others(NamedTuple):
    """What ran for events of other sequences: for those that were fine, and at failing ones."""

    fine: list[Ran]
    failing: list[Ran]


def other_events(tape: Tape, ops: dict[str, Operation]) -> Others:
    """Returns the events of sequences with the settings of the tape."""
    found = Others([], [])
    weights = weights_of(ops)
    for seed in range(MOST):
        if seed >= TRACED and len(found.failing) >= ENOUGH:
            break
        components, executor = tape.config.components, tape.executor
        swarm = draw_swarm(seed, weights, components, ranks=tape.ranks, executor=executor)
        swarm = replace(swarm, config=tape.config, pairs=tape.pairs, executor=executor)
        comparison = Comparison(tape.config)
        try:
            outcome = play.generate(swarm, ops, seed, OPERATIONS, follow=comparison.follow)
        except CallerError:
            continue  # a policy of the user raised an error
        first = comparison.first
        if outcome.failure is None and first is None and seed >= TRACED:
            continue
        ran = _traced(outcome.tape, ops)
        at = len(ran) - 1 if first is None else first.event - 1
        if outcome.failure is None and first is None:
            found.fine.extend(ran)
        elif ran:
            found.fine.extend(ran[:at])
            found.failing.append(ran[at])
    return found


def _traced(tape: Tape, ops: dict[str, Operation]) -> list[Ran]:
    coverage = Coverage()
    with coverage.tracing():
        play.replay(tape, ops, follow=coverage.follow)
    return coverage.ran()
