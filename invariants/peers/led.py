"""Which lines of an engine led to a failure.

A shrunk tape fails, and without any one of its entries it does not. Lines that ran in the failing
sequence and in few of those are suspected most. Only Python has lines; a core in another language
shows as the lines that call it.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

from .play import Line, Player
from .tape import PeerTape

MOST = 12  # lines
MOST_VARIANTS = 24
_At = tuple[CodeType, int]


class _Trace:
    """The lines of the engine that run, in the order in which each ran last."""

    def __init__(self, player: Player) -> None:
        self._where = player.where
        self._files: dict[str, str] = {}
        self.ran: dict[_At, None] = {}

    @contextmanager
    def on(self) -> Iterator[None]:
        before = sys.gettrace()
        sys.settrace(self._call)
        try:
            yield
        finally:
            sys.settrace(before)

    def _call(self, frame: FrameType, what: str, value: Any) -> Any:
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = self._where(name)
        return self._line if self._files[name] else None

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


def led(player: Player, tape: PeerTape) -> list[Line]:
    """Returns the suspected lines, the most suspected first."""
    failing = _Trace(player)
    with failing.on():
        failure = player.replay(tape).failure
    if failure is None:
        return []
    ran: Counter[tuple[str, int]] = Counter()
    variants = 0
    for at in range(max(0, len(tape.entries) - MOST_VARIANTS), len(tape.entries)):
        other = _Trace(player)
        with other.on():
            entries = tape.entries[:at] + tape.entries[at + 1 :]
            found = player.replay(replace(tape, entries=entries)).failure
        if found is not None and found.kind == failure.kind:
            continue
        variants += 1
        ran.update((code.co_filename, number) for code, number in other.ran)
    every = failing.lines()
    rank = {one: turn for turn, one in enumerate(reversed(every))}  # 0: ran last
    suspects = [one for one in every if ran[one[0].co_filename, one[1]] < max(1, variants)]
    suspects.sort(key=lambda one: (ran[one[0].co_filename, one[1]], rank[one]))
    return [failing.line(one) for one in suspects[:MOST]]
