"""The shadow state's record of one pool's pages: owner, content, locks, readers and writer.

owner       0, or id * 4 + kind of the only holder
content     tag of the prefix whose bytes the page holds (POISON: not written)
locks       number of locks: admitted requests that share it, pins of open transfers
busy        number of open actions that read or write it
writer      the open action that writes it, 0 if none
generation  the pool's generation when the page was last claimed
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hicache.core.ledger import Pool
from hicache.core.types import NO_PAGES, Pages, PageState, Tier

from .kinds import Kind
from .tags import POISON, Tags

NODE, REQUEST, TRANSFER = 1, 2, 3
KIND_BITS, KIND_MASK = 2, 3  # of an owner's code: its kind, below its number
KINDS = ("nobody", "node", "request", "transfer")
STATE_OF = tuple(map(int, (PageState.FREE, PageState.CACHED, PageState.OWNED, PageState.RESERVED)))


def code_of(kind: int, number: int) -> int:
    return (number << KIND_BITS) + kind


def name_of(code: int) -> str:
    return f"{KINDS[code & KIND_MASK]} {code >> KIND_BITS}" if code else "nobody"


class Clash(NamedTuple):
    """A page that a holder claims or releases although the shadow state has another owner."""

    page: int
    expected: int
    actual: int


def nothing(values: NDArray[Any]) -> bool:
    """Whether all numbers are 0."""
    return values.tobytes() == bytes(values.nbytes)


def same(pages: Pages | Tags, other: Pages | Tags) -> bool:
    """Whether two arrays of the same type are equal.

    Most arrays here are short, and for them comparing bytes is several times faster than numpy.
    """
    return pages.tobytes() == other.tobytes()


def all_are(values: NDArray[Any], wanted: int) -> bool:
    """Whether all numbers equal `wanted`."""
    if not len(values):
        return True
    raw = values.tobytes()
    return values.item(0) == wanted and raw == raw[: values.itemsize] * len(values)


class PageShadow:
    """All pages of one component's pool on one tier. where: name of the pool in reports. pool: the
    core's own record."""

    def __init__(self, tier: Tier, kind: Kind, pool: Pool) -> None:
        capacity = pool.capacity
        self.pool = pool
        self.tier = tier
        self.component = kind.at
        self.name = kind.name
        self.positional = kind.positional
        self.where = f"{tier.name.lower()} {kind.name}" if kind.at else tier.name.lower()
        self.capacity = capacity
        self.owner: Pages = np.zeros(capacity, dtype=np.int64)
        self.content: Tags = np.zeros(capacity, dtype=np.uint64)
        self.locks: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self.busy: NDArray[np.int32] = np.zeros(capacity, dtype=np.int32)
        self.writer: Pages = np.zeros(capacity, dtype=np.int64)
        self.generation: Pages = np.zeros(capacity, dtype=np.int64)
        self.owned = [0, 0, 0, 0]
        self.counts = [capacity, 0, 0, 0, 0]  # by state in the core, after the last operation
        self.protected = 0
        self.clashes: list[Clash] = []
        self.claimed: list[tuple[Pages, int]] = []
        self.released: list[Pages] = []
        self.strange: list[int] = []  # slots that a request took over with unknown bytes
        self.freed: Pages = NO_PAGES  # without a holder or user now
        self.retired: Pages = NO_PAGES  # without a holder, but in use by an open action
        self.retiring: set[int] = set()  # all pages of the last kind

    def begin(self) -> None:
        """Begins a new operation and clears the changes of the last one."""
        self.clashes, self.claimed, self.released = [], [], []
        self.freed = self.retired = NO_PAGES

    def claim(self, pages: Pages, code: int) -> None:
        numbers = pages.tolist()
        if not numbers:
            return
        if min(numbers) < 0 or max(numbers) >= self.capacity:
            wrong = pages[(pages < 0) | (pages >= self.capacity)]
            self.clashes.append(Clash(int(wrong[0]), 0, code))
            return
        before = self.owner[pages]
        if not nothing(before):
            at = int(before.argmax())
            self.clashes.append(Clash(numbers[at], 0, int(before[at])))
        if len({*numbers}) < len(numbers):
            twice = next(page for page in numbers if numbers.count(page) > 1)
            self.clashes.append(Clash(twice, 0, code))
        self.owner[pages] = code
        self.owned[code & KIND_MASK] += len(numbers)
        self.claimed.append((pages, code))

    def claim_all(self, claims: Sequence[tuple[Pages, int]]) -> None:
        """Claims pages for many holders of one kind.

        Works in one step if no page has an owner and each occurs once, else one by one to find
        clashes.
        """
        claims = [pair for pair in claims if len(pair[0])]
        if not claims:
            return
        pages = np.concatenate([some for some, _ in claims])
        if not self._are_free(pages):
            for some, code in claims:
                self.claim(some, code)
            return
        codes, sizes = [code for _, code in claims], [len(some) for some, _ in claims]
        self.owner[pages] = np.repeat(codes, sizes)
        self.owned[codes[0] & KIND_MASK] += len(pages)
        self.claimed += claims

    def _are_free(self, pages: Pages) -> bool:
        """Whether all pages are in the pool, without an owner, and occur once."""
        if np.count_nonzero((pages < 0) | (pages >= self.capacity)):
            return False
        there = np.zeros(self.capacity, dtype=bool)
        there[pages] = True
        once = np.count_nonzero(there) == len(pages)
        return once and not np.count_nonzero(self.owner[there])

    def retract(self, pages: Pages, code: int) -> None:
        if not len(pages):
            return
        owners = self.owner[pages]
        if not all_are(owners, code):
            at = int((owners != code).argmax())
            self.clashes.append(Clash(int(pages[at]), code, int(owners[at])))
        self.owner[pages] = 0
        self.owned[code & KIND_MASK] -= len(pages)
        self.released.append(pages)

    def begin_use(self, pages: Pages) -> None:
        self.busy[pages] += 1

    def end_use(self, pages: Pages) -> None:
        self.busy[pages] -= 1
        self.released.append(pages)

    def sort_out(self) -> None:
        """Finds the released pages without a holder, after everything is recorded: `freed` if
        unused, `retired` if an open action still uses them.
        """
        released = self.released
        if released:
            pages = released[0] if len(released) == 1 else np.concatenate(released)
            gone = pages[self.owner[pages] == 0]
            if len(gone):
                self.freed = gone
                uses = self.busy[gone]
                if not nothing(uses):
                    busy = uses > 0
                    self.freed, self.retired = gone[~busy], gone[busy]
        if self.retiring:
            self.retiring.difference_update(self.freed.tolist())
            for taken, _ in self.claimed:
                self.retiring.difference_update(taken.tolist())
        if len(self.retired):
            self.retiring.update(self.retired.tolist())
        self.count()

    def count(self) -> None:
        """Counts the pages by their state in the core."""
        _, nodes, requests, transfers = self.owned
        retiring = len(self.retiring)
        free = self.capacity - nodes - requests - transfers - retiring
        self.counts = [free, requests, nodes, transfers, retiring]

    def settle(self) -> None:
        """Records generations, and clears the content of freed pages; called after the checks."""
        now = self.pool.generation
        for pages, _ in self.claimed:
            self.generation[pages] = now[pages]
        if self.strange:
            self.content[self.strange] = POISON
            self.strange.clear()
        free = self.freed
        if len(free):
            self.generation[free] = now[free]
            self.content[free] = POISON
