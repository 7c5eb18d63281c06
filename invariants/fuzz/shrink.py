"""Shrinks a failing tape: passes in a fixed order that each try simpler tapes.

    remove entries after the failure; delete entries; remove faults; simplify the configuration;
    remove the device; take replies in time order; use plain gaps, polls and delays; use smaller
    integers and prompts; repeat while the tape gets smaller.

A simpler tape is kept only if it fails with the same code and kind, so that one bug does not turn
into another, and only if its `weight` is less, so that the search ends. There are no random draws:
the same tape and core give the same result. Does not define simpler tapes (see simpler), play them,
or use files and clocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from hicache.core.errors import CallerError

from . import simpler
from .play import Failure, Outcome
from .tapes.tape import Entry, Tape, dumps

Play = Callable[[Tape], Outcome]
MOST_PLAYS = 4000
FEW = 10  # up to this many entries, every pair is tried


@dataclass(frozen=True)
class Shrunk:
    """The result. tape: fails with `failure`. others: kinds of other failures that were rejected.
    whole: False if the limit of plays ended the search.
    """

    tape: Tape
    failure: Failure
    plays: int
    rounds: int
    others: dict[tuple[int, str], int]
    whole: bool


class _Enough(Exception):
    """The limit of plays is reached."""


class _Search:
    """The smallest tape so far, and the tapes that were tried."""

    def __init__(self, tape: Tape, failure: Failure, play: Play, most: int) -> None:
        self.play, self.most = play, most
        self.plays = 0
        self.others: Counter[tuple[int, str]] = Counter()
        self.tried: set[str] = set()
        self.tape, self.failure = _cut(tape, failure), failure
        self.weight = simpler.weight(self.tape)

    def take(self, tape: Tape) -> bool:
        """Plays a tape and keeps it if it is smaller and fails the same way. Returns whether it was
        kept.
        """
        if simpler.weight(tape) >= self.weight:
            return False
        text = dumps(tape)
        if text in self.tried:
            return False
        self.tried.add(text)
        if self.plays >= self.most:
            raise _Enough
        self.plays += 1
        try:
            found = self.play(tape).failure
        except CallerError:
            return False  # the core rejects these settings
        if found is None:
            return False
        if (found.code, found.kind) != (self.failure.code, self.failure.kind):
            self.others[found.code, found.kind] += 1
            return False
        self.tape, self.failure = _cut(tape, found), found
        self.weight = simpler.weight(self.tape)
        return True

    def take_any(self, tapes: Callable[[Tape], Iterable[Tape]]) -> None:
        """Takes simpler tapes until none of those one step simpler is kept."""
        while any(self.take(tape) for tape in tapes(self.tape)):
            pass

    def take_each(self, variants: Callable[[Tape, int], Iterable[Tape]]) -> None:
        """For each entry from the last, takes the first variant that is kept."""
        for at in reversed(range(len(self.tape.entries))):
            if at < len(self.tape.entries):
                any(self.take(tape) for tape in variants(self.tape, at))


def shrink(tape: Tape, failure: Failure, play: Play, most: int = MOST_PLAYS) -> Shrunk:
    """Returns the smallest tape found that fails like `failure`, with at most `most` plays."""
    search = _Search(tape, failure, play, most)
    rounds, whole = 0, False
    try:
        while not whole:
            rounds += 1
            before = search.weight
            _round(search)
            whole = search.weight == before
    except _Enough:
        pass
    return Shrunk(search.tape, search.failure, search.plays, rounds, dict(search.others), whole)


def _round(search: _Search) -> None:
    for tape in simpler.plain(search.tape):  # try everything at once first
        search.take(tape)
    _delete(search)
    search.take_each(simpler.quiet)
    search.take_each(simpler.faults)
    search.take_any(simpler.configurations)
    search.take_any(simpler.executors)
    search.take(replace(search.tape, order="time"))
    search.take_each(simpler.schedules)
    search.take_any(simpler.prompts)
    search.take_each(simpler.arguments)
    search.take_any(simpler.names)
    if len(search.tape.entries) <= FEW:
        search.take_any(_without_pairs)


def _cut(tape: Tape, failure: Failure) -> Tape:
    """Removes the entries after the failure, which were not played."""
    return replace(tape, entries=tape.entries[: failure.at])


def _delete(search: _Search) -> None:
    """Deletes requests and kinds of operations, then runs of entries: halves, quarters, single
    ones.
    """
    search.take_any(_without_a_group)
    size = max(1, len(search.tape.entries) // 2)
    while True:
        end = len(search.tape.entries)
        while end > 0:
            end = min(end, len(search.tape.entries))
            start = max(0, end - size)
            for tape in _without(search.tape, start, end):
                if search.take(tape):
                    break
            end = start
        if size == 1:
            return
        size = max(1, min(size, len(search.tape.entries)) // 2)


def _without(tape: Tape, start: int, end: int) -> Iterator[Tape]:
    """Yields the tape without these entries; for a single entry also with a long gap and a poll in
    its place.
    """
    head, rest = tape.entries[:start], tape.entries[end:]
    yield replace(tape, entries=head + rest)
    if rest and end - start == 1:
        waiting = rest[0]._replace(gap=simpler.LONG, poll=True)
        yield replace(tape, entries=(*head, waiting, *rest[1:]))


def _without_a_group(tape: Tape) -> Iterator[Tape]:
    """Yields the tape without each request, and without each kind of operation."""

    def kept(keep: Callable[[Entry], bool]) -> Tape:
        return replace(tape, entries=tuple(filter(keep, tape.entries)))

    requests = dict.fromkeys(entry.args.get("request") for entry in tape.entries)
    for request in reversed([one for one in requests if one is not None]):
        yield kept(lambda entry, request=request: entry.args.get("request") != request)  # type: ignore[misc]
    for op in dict.fromkeys(entry.op for entry in tape.entries):
        yield kept(lambda entry, op=op: entry.op != op)  # type: ignore[misc]


def _without_pairs(tape: Tape) -> Iterator[Tape]:
    """Yields the tape without two entries, or with a direct operation instead of them."""
    entries = tape.entries
    for second in reversed(range(len(entries))):
        for first in reversed(range(second)):
            head, last = entries[:first] + entries[first + 1 : second], entries[second + 1 :]
            yield replace(tape, entries=head + last)
            for other in simpler.instead(tape, second):
                yield replace(tape, entries=(*head, other, *last))
