"""Ranks and their collectives: minimum, conjunction and broadcast, named by number and purpose.

Ranks take the same decisions because each core is told the same events in the same order. They only
have to agree on which transfers have ended, and whether these succeeded.

A collective is a *turn*, which is a generator. For ranks in one process it yields its `Call`, and
`lockstep` brings the ranks together. For ranks in processes of their own (`gloo_group`) the group
itself waits, and the turn yields nothing. Ranks that enter different collectives would wait for
each other for ever; here that is an error that names both calls.

Does not start processes or wait, and does not know what ranks agree on; see `agreement`.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from functools import reduce
from operator import and_
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

from hicache.core.errors import About, CallerError, HicacheError

T = TypeVar("T")
Values: TypeAlias = tuple[int, ...]
ROOM = 54  # values of one message


class RankError(HicacheError):
    """Ranks differ. kind: which kind of difference, to tell whether two errors are the same."""

    exit_code = 15

    def __init__(self, kind: str, text: str, *about: About) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {text}", *about)


class UnequalCollectives(RankError):
    """Not all ranks are at the same collective. Real ranks would hang."""

    def __init__(self, text: str) -> None:
        super().__init__("COLL-SEQ", f"ranks enter the same collectives in the same order; {text}")


class Diverged(RankError):
    """Ranks decided differently. what: the kind of decision."""

    def __init__(self, what: str, text: str, *about: About) -> None:
        super().__init__(f"RANK-EQ {what}", f"ranks take the same decisions; {text}", *about)


class MissingRank(RankError):
    """A rank ended, hangs, or never came. missing: which ones, as far as that is known."""

    exit_code = 2

    def __init__(self, text: str, missing: Sequence[int] = ()) -> None:
        self.missing = tuple(missing)
        super().__init__("RANK-GONE", text)


class Call(NamedTuple):
    """One rank at one collective. root: the rank whose values a broadcast sends."""

    number: int
    op: str
    purpose: str
    values: Values
    root: int = 0

    def __str__(self) -> str:
        return f"collective {self.number}, {self.op} of {len(self.values)} for {self.purpose}"


Turn: TypeAlias = Generator[Call, Values, T]


class Group(Protocol):
    """The group, as one of its ranks sees it. A collective of n values returns n values.

    waits: whether a turn itself waits for the other ranks, instead of yielding its calls.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def waits(self) -> bool: ...

    def minimum(self, purpose: str, values: Sequence[int]) -> Turn[Values]: ...

    def conjunction(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        """Of each value, the bits that it has on every rank. Values are 0 or more."""

    def broadcast(self, purpose: str, values: Sequence[int], root: int = 0) -> Turn[Values]: ...


class LocalGroup:
    """One of several ranks in one process. `lockstep` runs its turns."""

    waits = False

    def __init__(self, rank: int, size: int) -> None:
        if not 0 <= rank < size:
            raise CallerError(f"rank: expected 0 to {size - 1}, found {rank}")
        self.rank, self.size = rank, size
        self.entered = 0  # collectives

    def minimum(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        return (yield self._call("minimum", purpose, values))

    def conjunction(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        return (yield self._call("conjunction", purpose, values))

    def broadcast(self, purpose: str, values: Sequence[int], root: int = 0) -> Turn[Values]:
        return (yield self._call("broadcast", purpose, values, root))

    def _call(self, op: str, purpose: str, values: Sequence[int], root: int = 0) -> Call:
        self.entered += 1
        return Call(self.entered, op, purpose, tuple(values), root)


def local_groups(size: int) -> list[LocalGroup]:
    return [LocalGroup(rank, size) for rank in range(size)]


def of_ranks(ranks: Sequence[int]) -> str:
    """Some ranks in words."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def alone(turn: Turn[T]) -> T:
    """Run a turn of a group that waits by itself, and return its result. Raises CallerError for any
    other group."""
    try:
        call = next(turn)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise CallerError(
        f"{call}: expected a group that waits for its ranks; play turns of one process in lockstep"
    )


class _Ended(NamedTuple):
    value: Any


def lockstep(turns: Sequence[Turn[T]]) -> list[T]:
    """Run the turns of all ranks together, from one collective to the next, until all have ended.

    Returns their results, by rank. Raises UnequalCollectives if ranks are at different ones."""
    last: list[Call | None] = [None] * len(turns)
    answer: Values | None = None
    while True:
        calls = [_go_on(turn, answer) for turn in turns]
        if all(isinstance(call, _Ended) for call in calls):
            return [call.value for call in calls if isinstance(call, _Ended)]
        entered = _same(calls, last, turns)
        answer = combined(entered)
        last = list(entered)


def combined(calls: Sequence[Call]) -> Values:
    """The result of a collective, from the equal calls of all ranks."""
    first = calls[0]
    if first.op == "broadcast":
        return calls[first.root].values
    columns = zip(*(call.values for call in calls), strict=True)
    if first.op == "conjunction":
        return tuple(reduce(and_, column) for column in columns)
    return tuple(map(min, columns))


def differs(one: Call, other: Call) -> bool:
    """Whether two calls are different collectives."""
    return (*one[:3], len(one.values), one.root) != (*other[:3], len(other.values), other.root)


def _go_on(turn: Turn[T], answer: Values | None) -> Call | _Ended:
    try:
        return next(turn) if answer is None else turn.send(answer)
    except StopIteration as end:
        return _Ended(end.value)


def _same(
    calls: Sequence[Call | _Ended], last: Sequence[Call | None], turns: Sequence[Turn[T]]
) -> list[Call]:
    first = next(at for at, call in enumerate(calls) if isinstance(call, Call))
    one = calls[first]
    assert isinstance(one, Call)
    for rank, call in enumerate(calls):
        if isinstance(call, _Ended):
            before = last[rank]
            since = f"behind {before}" if before else "without entering any"
            raise UnequalCollectives(
                f"rank {first} waits at {one} ({_site(turns[first])}), rank {rank} went on {since}"
            )
        if differs(one, call):
            raise UnequalCollectives(
                f"rank {first} waits at {one} ({_site(turns[first])}), "
                f"rank {rank} at {call} ({_site(turns[rank])})"
            )
    return [call for call in calls if isinstance(call, Call)]


def _site(turn: Any) -> str:
    """Where in the code a turn waits: the function that called its group."""
    inner = turn
    while getattr(inner, "gi_yieldfrom", None) is not None:
        turn, inner = inner, inner.gi_yieldfrom
    return f"{turn.gi_code.co_qualname}, line {turn.gi_frame.f_lineno}"
