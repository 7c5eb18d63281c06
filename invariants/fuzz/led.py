"""Which lines of an engine led to a failure.

A shrunk tape fails; without any one of its entries it does not, and most sequences that are drawn
for its configuration do not. Lines that run in failing sequences and seldom in others are suspected
most. The measure is that of Ochiai: f / sqrt(F * (f + p)), where f of F failing sequences and p
others ran the line (Abreu et al., "An Evaluation of Similarity Coefficients for Software Fault
Localization", PRDC 2006). Only Python has lines; a core in another language shows as the lines that
call it.
"""

from __future__ import annotations

import linecache
import math
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from invariants.fuzz.play import Line, Player, look
from invariants.fuzz.sequence import Tape

MOST, MOST_OF_FUNCTION = 14, 2  # lines
MOST_VARIANTS = 24
MOST_DRAWN, DRAWN = 16, 40  # sequences, and entries of each
_At = tuple[CodeType, int]


class _Trace:
    """The lines of the engine that run, in the order in which each ran last."""

    def __init__(self, player: Player) -> None:
        self._where = player.where
        self._files: dict[str, str] = {}
        self._looking = 0  # how deep the harness reads the state, which is no work of the engine
        self.ran: dict[_At, None] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        """Within the block, notes what runs."""
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, what: str, value: Any) -> Any:
        if frame.f_code is look.__code__:
            self._looking += 1
            return self._look
        if self._looking:
            return None
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = self._where(name)
        return self._line if self._files[name] else None

    def _look(self, frame: FrameType, what: str, value: Any) -> Any:
        self._looking -= what == "return"
        return self._look

    def _line(self, frame: FrameType, what: str, value: Any) -> Any:
        if what == "line":
            at = frame.f_code, frame.f_lineno
            self.ran.pop(at, None)
            self.ran[at] = None
        return self._line

    def lines(self) -> list[_At]:
        return list(self.ran)

    def line(self, at: _At) -> Line:
        code, number = at
        text = linecache.getline(code.co_filename, number).strip()
        return Line(self._files[code.co_filename], number, code.co_name, text)


def led(player: Player, tape: Tape) -> list[Line]:
    """Returns the suspected lines, the most suspected first, at most a few of each function."""
    failing = _Trace(player)
    with failing.on():
        failure = player.replay(tape).failure
    if failure is None:
        return []
    failed: Counter[tuple[str, int]] = Counter()
    passed: Counter[tuple[str, int]] = Counter()
    failures = 1
    for trace, kind in _others(player, tape):
        ran = {(code.co_filename, number) for code, number in trace.ran}
        if kind == failure.kind:
            failures += 1
            failed.update(ran)
        elif kind is None:
            passed.update(ran)
    every = failing.lines()
    rank = {one: turn for turn, one in enumerate(reversed(every))}  # 0: ran last

    def suspicion(one: _At) -> float:
        at = one[0].co_filename, one[1]
        count = 1 + failed[at]
        return count / math.sqrt(failures * (count + passed[at]))

    every.sort(key=lambda one: (-suspicion(one), rank[one]))
    found: list[Line] = []
    of_function: Counter[CodeType] = Counter()
    for one in every:
        of_function[one[0]] += 1
        if of_function[one[0]] <= MOST_OF_FUNCTION and len(found) < MOST:
            found.append(failing.line(one))
    return found


def ran(player: Player, tape: Tape) -> list[tuple[str, str]]:
    """The functions of the engine that run in a tape: their files and names."""
    trace = _Trace(player)
    with trace.on():
        player.replay(tape)
    return sorted({(trace.line(at).file, at[0].co_name) for at in trace.ran})


def _others(player: Player, tape: Tape) -> Iterator[tuple[_Trace, str | None]]:
    """Other sequences: what ran, and how they fail."""
    for at in range(max(0, len(tape.entries) - MOST_VARIANTS), len(tape.entries)):
        trace = _Trace(player)
        with trace.on():
            entries = tape.entries[:at] + tape.entries[at + 1 :]
            found = player.replay(replace(tape, entries=entries)).failure
        yield trace, None if found is None else found.kind
    for seed in range(MOST_DRAWN):
        trace = _Trace(player)
        with trace.on():
            found = player.generate(seed, DRAWN, tape.config).failure
        yield trace, None if found is None else found.kind
