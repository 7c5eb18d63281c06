"""A storage lies, loses what it has, dies for a while, or comes and goes while an action runs."""

from __future__ import annotations

from hicache.core.events import (
    DetachWanted,
    Flushed,
    PrefetchLimitReached,
    Reply,
    StorageAttached,
)
from invariants.fuzz.hicache.faults.base import STORAGE_SITES, Fault, Player
from invariants.fuzz.hicache.faults.plain import AbortIssued, Rival, job_of
from invariants.fuzz.records import LEAST_MADE_UP, Pending

DEAD = 300  # time for which a storage that dies is dead
OTHER = 2  # the cleaner takes every second page


class OfStorage(Fault):
    of_storage = True

    def __init__(self, *sites: str) -> None:
        self.sites = sites or STORAGE_SITES


class Half(OfStorage):
    """Half of what is there is found, arrives or is stored."""

    def says(self, pages: int, most: int) -> int:
        return pages // 2


class Lies(OfStorage):
    """A lookup says that everything is there."""

    def says(self, pages: int, most: int) -> int:
        return most


class LosesSecretly(OfStorage):
    """A store is acknowledged, and part of it or all of it is lost."""

    def __init__(self, divisor: int) -> None:
        super().__init__("Store")
        self.divisor = divisor

    def kept(self, pages: int) -> int:
        return pages // self.divisor if self.divisor else 0


class Unacknowledged(OfStorage):
    """Everything is stored, and the reply says that nothing is."""

    def says(self, pages: int, most: int) -> int:
        return 0

    def kept(self, pages: int) -> int:
        return 1 << 30


class Cleaned(OfStorage):
    """Pages of the action are deleted before its reply: one, or every second."""

    def __init__(self, every: bool) -> None:
        super().__init__("Lookup", "Fetch", "Store")
        self.every = every

    def before(self, hand: Player, one: Pending) -> None:
        names = hand.shelf.named(one.action)
        at = one.tie % max(1, len(names))
        hand.shelf.forget(names[at % OTHER :: OTHER] if self.every else names[at : at + 1])


class Dies(OfStorage):
    """The storage does nothing for a while."""

    def before(self, hand: Player, one: Pending) -> None:
        hand.shelf.dead_until = hand.now + DEAD


class OldData(OfStorage):
    """The storage has only what it had some time ago, and nobody is told."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        hand.shelf.come_back()


class Replaced(OfStorage):
    """The storage loses everything, and is attached again."""

    def before(self, hand: Player, one: Pending) -> None:
        hand.shelf.values.clear()
        hand.feed(StorageAttached())


class Detached(OfStorage):
    """The storage is detached while the action runs. It is attached again before the reply, which
    is refused, or after it."""

    def __init__(self, again: bool) -> None:
        super().__init__()
        self.again = again

    def issued(self, hand: Player, one: Pending) -> None:
        if hand.core.view.attached:
            hand.feed(DetachWanted())
        if self.again:
            hand.feed(StorageAttached())

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        hand.feed(StorageAttached())


class Emptied(OfStorage):
    """Cache and storage are flushed during the action; refused while a request is admitted."""

    def __init__(self) -> None:
        super().__init__("Lookup", "Fetch", "Store")  # a flush deletes

    def before(self, hand: Player, one: Pending) -> None:
        hand.feed(Flushed(storage=True))


class Limit(OfStorage):
    """The request has waited for long enough when the action begins, or when it has ended."""

    def __init__(self, at_once: bool) -> None:
        super().__init__("Lookup", "Fetch")
        self.at_once = at_once

    def _reach(self, hand: Player, one: Pending) -> None:
        job = job_of(hand, one)
        if job is not None and job.stage == "waiting":
            hand.feed(PrefetchLimitReached(job.id))

    def issued(self, hand: Player, one: Pending) -> None:
        if self.at_once:
            self._reach(hand, one)

    def before(self, hand: Player, one: Pending) -> None:
        if not self.at_once:
            self._reach(hand, one)


class AbortPrefetch(AbortIssued):
    of_storage = True


class RivalPrefetch(Rival):
    """Only of a request that no fault has made: what rivals join may have a rival again."""

    of_storage = True
    sites = ("Lookup", "Fetch")

    def issued(self, hand: Player, one: Pending) -> None:
        first = job_of(hand, one)
        if first is not None and first.id < LEAST_MADE_UP:
            super().issued(hand, one)


KINDS = {
    "half of it": Half("Lookup", "Fetch", "Store"),
    "lookup lies": Lies("Lookup"),
    "stored, then lost": LosesSecretly(0),
    "stored in part": LosesSecretly(2),
    "stored, not acknowledged": Unacknowledged("Store"),
    "page cleaned": Cleaned(False),
    "pages cleaned": Cleaned(True),
    "storage dies": Dies(),
    "old data is back": OldData(),
    "storage replaced": Replaced(),
    "storage detached": Detached(False),
    "storage detached and attached": Detached(True),
    "storage flushed": Emptied(),
    "limit reached at once": Limit(True),
    "limit reached": Limit(False),
    "abort while looking up": AbortPrefetch("Lookup"),
    "abort while fetching": AbortPrefetch("Fetch"),
    "rival for the same prefetch": RivalPrefetch(),
    "fetched in part": Half("Fetch"),
}
