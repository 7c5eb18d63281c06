"""What one rank says that it can do, as a set, and how the sets of all ranks travel together.

A reply is a number: pages, or 1 if the action was done. To the other ranks, a rank offers every
number that would be right for it. All ranks can do what is in the conjunction of their sets, and
its largest number is the reply, 0 if it is empty. For most actions a rank that can do n pages can
do fewer as well: there this is the minimum. It is not for a lookup of windows or states:

    boundaries after n pages     1 2 3 4 5 6 7 8
    rank 0 can restore           .   # . # . . #     deepest: 8
    rank 1 can restore           . # # . # # . .     deepest: 6, and no boundary of rank 0
    all can restore              . . # . # . . .     reply: 5

A set is an integer: bit n - 1 says whether n is in it. The sets of several flights stand one after
the other in words of `WORD` bits, so a collective carries one bit for each page that was asked for.

Does not decide what a rank can restore, see `storage.workers`, or collect replies, see `agreement`
and, under vLLM, `hicache/vllm/orders`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Action, Fetch, Lookup, Store
from hicache.core.events import LookupDone, Reply
from hicache.core.types import FlightId

WORD = 62  # bits; words must fit in signed 64 bits


class LookedUp(LookupDone):
    """The reply to a lookup on one of several ranks, before they agree. boundaries: the set of all
    at which every component has what it requires. pages: the deepest of them."""

    boundaries: int

    def __new__(cls, flight: FlightId, boundaries: int) -> LookedUp:
        made = super().__new__(cls, flight, boundaries.bit_length())
        made.boundaries = boundaries
        return made


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
    for one, size in zip(sets, sizes, strict=True):
        bits |= one << at
        at += size
    return [bits >> start & upto(WORD) for start in range(0, at, WORD)]


def unpacked(words: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """The sets that `packed` has put into these words."""
    bits = sum(word << WORD * at for at, word in enumerate(words))
    found = []
    for size in sizes:
        found.append(bits & upto(size))
        bits >>= size
    return found
