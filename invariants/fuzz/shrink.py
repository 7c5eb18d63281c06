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
from typing import Any, NamedTuple, TypeAlias

from hicache.core.errors import CallerError
from invariants.fuzz.hicache import simpler
from invariants.fuzz.sequence import Entry, dumps

Tape: TypeAlias = Any  # of a core, or of a peer, which has records of its own
Failure: TypeAlias = Any
Play = Callable[[Tape], Any]  # returns an outcome with a `failure`
MOST_PLAYS = 4000
FEW = 10  # up to this many entries, every pair is tried


@dataclass(frozen=True)
class Shrunk:
    """The result. tape: fails with `failure`. others: kinds of other failures that were rejected.
    whole: False if the search was ended before it had tried everything.
    """

    tape: Tape
    failure: Failure
    plays: int
    rounds: int
    others: dict[tuple[int, str], int]
    whole: bool


class _Enough(Exception):
    """The limit of plays is reached."""


class _Best(NamedTuple):
    """The smallest tape so far. One record, so that an interrupted search has no half of it."""

    tape: Tape
    failure: Failure
    weight: tuple[int, ...]


class Ways(NamedTuple):
    """How tapes of one kind get simpler. weight: orders them. dumps: their file form. passes: one
    round of the search."""

    weight: Callable[[Tape], tuple[int, ...]]
    dumps: Callable[[Tape], str]
    passes: Callable[[Search], None]


class Search:
    """The smallest tape so far, and the tapes that were tried. An exception of `play` ends `run`,
    and `shrunk` is valid at any time. ways: default those of tapes of a core.
    """

    def __init__(
        self,
        tape: Tape,
        failure: Failure,
        play: Play,
        most: int = MOST_PLAYS,
        ways: Ways | None = None,
    ) -> None:
        self.play, self.most = play, most
        self.ways = ways or OF_CORES
        self.plays = self.rounds = 0
        self.whole = False
        self.others: Counter[tuple[int, str]] = Counter()
        self.tried: set[str] = set()
        self._keep(tape, failure)

    @property
    def tape(self) -> Tape:
        return self._best.tape

    def run(self) -> None:
        """Searches until nothing smaller is found, with at most `most` plays."""
        try:
            while not self.whole:
                self.rounds += 1
                before = self._best.weight
                self.ways.passes(self)
                self.whole = self._best.weight == before
        except _Enough:
            pass

    def shrunk(self) -> Shrunk:
        """The smallest tape so far."""
        tape, failure, _ = self._best
        return Shrunk(tape, failure, self.plays, self.rounds, dict(self.others), self.whole)

    def _keep(self, tape: Tape, failure: Failure) -> None:
        small = _cut(tape, failure)
        self._best = _Best(small, failure, self.ways.weight(small))

    def take(self, tape: Tape) -> bool:
        """Plays a tape and keeps it if it is smaller and fails the same way. Returns whether it was
        kept.
        """
        if self.ways.weight(tape) >= self._best.weight:
            return False
        text = self.ways.dumps(tape)
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
        wanted = self._best.failure
        if (found.code, found.kind) != (wanted.code, wanted.kind):
            self.others[found.code, found.kind] += 1
            return False
        self._keep(tape, found)
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
    search = Search(tape, failure, play, most)
    search.run()
    return search.shrunk()


def _round(search: Search) -> None:
    for tape in simpler.plain(search.tape):  # try everything at once first
        search.take(tape)
    delete(search)
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


def delete(search: Search) -> None:
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


OF_CORES = Ways(simpler.weight, dumps, _round)
