"""Ranks of one model: their collectives, and agreement on replies.

Each rank has a core of its own. All cores get the same events in the same order, so they take the
same decisions; only replies differ between ranks. A reply counts when all ranks have it, and is
good if it is good on all. At every poll, every rank enters one collective, even if nothing has
ended there: for each action under way it sends whether it has ended and the numbers that it can
stand for, and with `Decisions` a digest, so cores that decided differently are an error at the next
poll. Actions of a kind are answered in the order of submission; actions for storage one by one, as
one slow store must not delay the replies to the others.

A reply is a number: pages, or 1 if the action was done. For most actions a rank that can do n pages
can do fewer as well, so the least number of all ranks is right on all. It is not for a lookup of
windows or states:

    boundaries after n pages     1 2 3 4 5 6 7 8
    rank 0 can restore           .   # . # . . #     deepest: 8
    rank 1 can restore           . # # . # # . .     deepest: 6, and no boundary of rank 0
    all can restore              . . # . # . . .     reply: 5

So ranks send sets. A set is an integer whose bit n - 1 says whether n is in it. The reply is the
largest number of the conjunction. Sets stand one after the other in words of `WORD` bits.

A collective is a *turn*, which is a generator. For ranks in one process it yields its `Call`, and
`lockstep` brings the ranks together. In processes of their own (`gloo_group`) the group itself
waits, and the turn yields nothing. Ranks at different collectives are an error that names both.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import fields, replace
from functools import reduce
from hashlib import blake2b
from itertools import takewhile
from operator import and_
from typing import NamedTuple, TypeAlias, TypeVar

from hicache.core.actions import (
    Action,
    Backup,
    Fetch,
    HostTransfer,
    Load,
    Lookup,
    Prefill,
    StorageAction,
    Store,
)
from hicache.core.config import Config
from hicache.core.errors import About, CallerError, HicacheError
from hicache.core.events import BackupDone, LoadDone, LookupDone, PrefillDone, Reply
from hicache.core.types import TransferId

from .driver import REPLY_TO, Executor
from .encoding import Decisions

T = TypeVar("T")
Values: TypeAlias = tuple[int, ...]
WORD = 62  # bits; words must fit in signed 64 bits
_DIGEST = 32  # bits
_CAPACITIES = ("device_pages", "host_pages")


class RankError(HicacheError):
    """Ranks differ. kind: which kind of difference, to tell whether two errors are the same."""

    exit_code = 15

    def __init__(self, kind: str, text: str, *about: About) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {text}", *about)


class UnequalCollectives(RankError):
    """Not all ranks are at the same collective. Real ranks would hang."""

    def __init__(self, text: str) -> None:
        super().__init__("COLL-SEQ", text)


class Diverged(RankError):
    """Ranks decided differently. what: the kind of decision."""

    def __init__(self, what: str, text: str, *about: About) -> None:
        super().__init__(f"RANK-EQ {what}", f"ranks take the same decisions; {text}", *about)


class MissingRank(RankError):
    """A rank ended, hangs, or never came."""

    exit_code = 2

    def __init__(self, text: str) -> None:
        super().__init__("RANK-GONE", text)


# -- collectives


class Call(NamedTuple):
    """One rank at one collective. root: the rank whose values a broadcast sends."""

    number: int
    op: str
    purpose: str
    values: Values
    root: int = 0

    def __str__(self) -> str:
        root = f" from rank {self.root}" if self.root else ""
        return f"collective {self.number}, {self.op}{root} of {len(self.values)} for {self.purpose}"


Turn: TypeAlias = Generator[Call, Values, T]


class Group:
    """The group, as one of its ranks sees it; here of ranks in one process. A collective of n
    values returns n values. waits: whether a turn itself waits for the other ranks (`meet`),
    instead of yielding its calls. entered: number of collectives."""

    waits = False

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.entered = rank, size, 0

    def minimum(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        return self._enter("minimum", purpose, values)

    def conjunction(self, purpose: str, values: Sequence[int]) -> Turn[Values]:
        """Of each value, the bits that it has on every rank. Values are 0 or more."""
        return self._enter("conjunction", purpose, values)

    def broadcast(self, purpose: str, values: Sequence[int], root: int = 0) -> Turn[Values]:
        return self._enter("broadcast", purpose, values, root)

    def meet(self, call: Call) -> Values:
        """Wait for all ranks and return the result."""
        raise NotImplementedError

    def _enter(self, op: str, purpose: str, values: Sequence[int], root: int = 0) -> Turn[Values]:
        self.entered += 1
        call = Call(self.entered, op, purpose, tuple(values), root)
        return self.meet(call) if self.waits else (yield call)


def local_groups(size: int) -> list[Group]:
    return [Group(rank, size) for rank in range(size)]


def alone(turn: Turn[T]) -> T:
    """Run a turn of a group that waits, and return its result."""
    try:
        call = next(turn)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise CallerError(f"{call}: this group does not wait; play its turns in lockstep")


def lockstep(turns: Sequence[Turn[T]]) -> list[T]:
    """Run the turns of all ranks together, from one collective to the next, until all have ended.

    Returns their results, by rank. Raises UnequalCollectives if ranks are at different ones."""
    results: dict[int, T] = {}
    answer: Values | None = None
    while True:
        calls: dict[int, Call] = {}
        for rank, turn in enumerate(turns):
            try:
                calls[rank] = next(turn) if answer is None else turn.send(answer)
            except StopIteration as end:
                results[rank] = end.value
        if not calls:
            return [results[rank] for rank in range(len(turns))]
        first, call = next(iter(calls.items()))
        for rank in range(len(turns)):
            other = str(calls.get(rank, "no collective any more"))
            if other != str(call):
                raise UnequalCollectives(f"rank {first} is at {call}, rank {rank} at {other}")
        answer = combined(list(calls.values()))


def combined(calls: Sequence[Call]) -> Values:
    """The result of a collective, from the equal calls of all ranks."""
    first = calls[0]
    if first.op == "broadcast":
        return calls[first.root].values
    columns = zip(*(call.values for call in calls), strict=True)
    if first.op == "conjunction":
        return tuple(reduce(and_, column) for column in columns)
    return tuple(map(min, columns))


# -- sets of numbers


class LookedUp(LookupDone, frozen=True):
    """The reply to a lookup on one of several ranks, before they agree. boundaries: the set of all
    at which every component has what it requires. pages: the deepest of them."""

    boundaries: int = 0


def looked_up(transfer: TransferId, boundaries: int) -> LookedUp:
    """The reply of a rank whose store has what these boundaries require."""
    return LookedUp(transfer, boundaries.bit_length(), boundaries)


def upto(number: int) -> int:
    """The set of 1 to `number`."""
    return (1 << number) - 1


def offered(reply: Reply) -> int:
    """The set of numbers that are right on the rank that replies."""
    return reply.boundaries if isinstance(reply, LookedUp) else upto(int(reply[1]))


def most_of(action: Action) -> int:
    """The largest number that a reply to this action can have."""
    if isinstance(action, Lookup):
        return len(action.digests)
    if isinstance(action, Fetch):
        return action.pages
    if isinstance(action, Store):
        return sum(len(piece.digests) for piece in action.pieces)
    return 1


def packed(sets: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Sets of numbers up to these sizes, as words."""
    bits = at = 0
    for item, size in zip(sets, sizes, strict=True):
        bits |= item << at
        at += size
    return [bits >> start & upto(WORD) for start in range(0, at, WORD)]


def unpacked(words: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The sets that `packed` has put into these words."""
    bits = sum(word << WORD * at for at, word in enumerate(words))
    sets = []
    for size in sizes:
        sets.append(bits & upto(size))
        bits >>= size
    return sets


# -- agreement

REPLIES: dict[type, type[BackupDone | LoadDone | PrefillDone]] = {
    Backup: BackupDone,
    Load: LoadDone,
    Prefill: PrefillDone,
}


class Agreement:
    """The executor of one rank. The driver submits transfers to it as to any executor. The code
    that runs forward passes reports each with `begin` and `end`, and gets its reply from `poll`."""

    def __init__(
        self, executor: Executor, group: Group, decisions: Decisions | None = None
    ) -> None:
        self.executor = executor
        self.group = group
        self._decisions = decisions
        self._open: dict[TransferId, Action] = {}  # in the order of submission
        self._ended: dict[TransferId, int] = {}  # not yet agreed: what this rank offers
        self._agreed: list[Reply] = []

    def submit(self, action: HostTransfer | StorageAction) -> None:
        self.begin(action)
        self.executor.submit(action)

    def abandon(self, transfer: TransferId) -> None:
        self.executor.abandon(transfer)

    def start(self) -> None:
        self.executor.start()

    def begin(self, action: Action) -> None:
        """Note that an action was begun. The caller itself carries out forward passes."""
        self._open[action.transfer] = action

    def end(self, reply: Reply) -> None:
        """Note that an action has ended on this rank, with or without success. Raises CallerError
        for a reply to nothing, or with more pages than were wanted."""
        action = self._open.get(reply.transfer)
        if action is None or not 0 <= reply[1] <= most_of(action):
            raise CallerError(f"{reply} is no reply to {action}")
        self._ended[reply.transfer] = offered(reply)

    def poll(self) -> list[Reply]:
        """The replies that all ranks have. In a group that waits, every rank must call this equally
        often. In any other group, the caller must first run `agree` of all ranks in lockstep."""
        if self.group.waits:
            alone(self.agree())
        replies, self._agreed = self._agreed, []
        return replies

    def agree(self) -> Turn[None]:
        """Find out which replies all ranks have."""
        for reply in self.executor.poll():
            self.end(reply)
        everywhere = yield from self._everywhere()
        for transfer, numbers in everywhere.items():
            del self._ended[transfer]
            kind = type(self._open.pop(transfer))
            self._agreed.append(REPLY_TO[kind](transfer, numbers.bit_length()))

    def _everywhere(self) -> Turn[dict[TransferId, int]]:
        """The actions that have ended on every rank, in the order of their replies: the numbers
        that are right on all. Raises Diverged if cores decided differently, or if the group
        returns something that is not so here."""
        rank, transfers = self.group.rank, list(self._open)
        digest = int(self._decisions.short(), 16) if self._decisions is not None else 0
        mine = [
            digest,
            ~digest & upto(_DIGEST),
            *(int(transfer in self._ended) for transfer in transfers),
        ]
        mine += [self._ended.get(transfer, 0) for transfer in transfers]
        sizes = [_DIGEST, _DIGEST, *[1] * len(transfers), *map(most_of, self._open.values())]
        purpose = f"replies to {len(transfers)} actions"
        words = yield from self.group.conjunction(purpose, packed(mine, sizes))
        common = unpacked(words, sizes)
        if common[:2] != mine[:2]:
            raise Diverged("decisions", f"rank {rank} has digest {digest:08x}, and not all have it")
        if any(both & ~own for both, own in zip(common, mine, strict=True)):
            text = (
                f"rank {rank} has {mine[2:]}, and the conjunction for {transfers} is {common[2:]}"
            )
            raise Diverged("reduction", text)
        numbers = dict(zip(transfers, common[2 + len(transfers) :], strict=True))
        ended = {transfer for transfer, bit in zip(transfers, common[2:], strict=False) if bit}
        by_kind = [
            [transfer for transfer in transfers if type(self._open[transfer]) is kind]
            for kind in REPLIES
        ]
        by_kind += [
            [transfer] for transfer in transfers if type(self._open[transfer]) not in REPLIES
        ]
        return {
            number: numbers[number]
            for same_kind in by_kind
            for number in takewhile(ended.__contains__, same_kind)
        }


def agree_on_settings(config: Config, group: Group) -> Turn[Config]:
    """The settings for the core of every rank. Each pool gets the smallest size that a rank has.
    Raises CallerError if other settings differ between ranks; it names all of them."""
    own = {field.name: getattr(config, field.name) for field in fields(Config)}
    names = [name for name in own if name not in _CAPACITIES]
    hashes = [blake2b(repr(own[name]).encode(), digest_size=7).digest() for name in names]
    numbers = [int.from_bytes(digest, "big") for digest in hashes]
    least = yield from group.minimum("settings", [*numbers, *(-number for number in numbers)])
    pairs = zip(names, least, least[len(names) :], strict=False)
    if differ := [name for name, low, high in pairs if low != -high]:
        mine = ", ".join(f"{name} {own[name]!r}" for name in differ)
        raise CallerError(
            f"{', '.join(differ)}: give all ranks the same; rank {group.rank} has {mine}"
        )
    pages = yield from group.minimum("capacities", [*config.device_pages, *config.host_pages])
    width = len(config.components)
    return replace(config, device_pages=pages[:width], host_pages=pages[width:])
