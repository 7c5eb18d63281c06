"""The interface of faults, what they may use of the hand, and the registry.

A file defines `KINDS`, name -> Fault. A fault applies to one action of a tape (`Act.fault`) and
overrides hooks; by default, a hook changes nothing. The swarm enables a kind for a sequence and
sets its probability per action. Does not define any particular kind.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Protocol

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Event, Reply
from hicache.core.types import Key
from invariants.fuzz.hicache.content import Content
from invariants.fuzz.hicache.shelf import Shelf
from invariants.fuzz.records import Job, Pending

SITES = ("Load", "Backup", "Prefill")
STORAGE_SITES = ("Lookup", "Fetch", "Store", "Delete")
EVERY = (*SITES, *STORAGE_SITES)
LOST = 1 << 60


class Player(Protocol):
    """The parts of the hand that a fault may use."""

    now: int
    blind: int
    config: Config
    core: Core
    content: Content | None
    shelf: Shelf
    jobs: dict[int, Job]
    used: set[int]
    landed: set[int]
    pending: list[Pending]
    slow: dict[str, int]
    counts: Counter[str]

    def feed(self, event: Event) -> list[Outcome]: ...
    def refused(self, event: Event) -> None: ...
    def take(self, one: Pending) -> None: ...
    def abort(self, job: Job) -> None: ...
    def retract(self, job: Job) -> None: ...
    def key(self, job: Job, tokens: int) -> Key: ...
    def decode(
        self, job: Job, ids: list[int], tokens: list[int], span: tuple[int, int]
    ) -> None: ...


class Fault:
    """One kind of fault. sites: the actions that it applies to. fine: whether the reply reports
    success. of_ranks: whether it needs several ranks. of_storage: whether it needs a storage.
    """

    sites: tuple[str, ...] = EVERY
    fine = True
    of_ranks = False
    of_storage = False

    def due(self, hand: Player, due: int) -> int:
        """Returns the time of the reply, which was `due` without the fault."""
        return due

    def tie(self, number: int, tie: int) -> int:
        """Returns the order of the reply among those due at the same time."""
        return tie

    def arrives(self, at: int, count: int) -> bool:
        """Whether page `at` of `count` of a failed copy arrives."""
        return False

    def says(self, pages: int, most: int) -> int:
        """What the reply of a storage says, in which `pages` of `most` were found, have arrived or
        are stored."""
        return pages

    def kept(self, pages: int) -> int:
        """Of so many pages that a storage says to have stored, how many it has stored."""
        return pages

    def issued(self, hand: Player, one: Pending) -> None:
        """Called when the operation that issued the action has ended."""

    def before(self, hand: Player, one: Pending) -> None:
        """Called when the work is done, before the reply is taken."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        """Called after the reply was taken."""


NONE = Fault()


@cache
def load() -> dict[str, Fault]:
    """All kinds by name."""
    found: dict[str, Fault] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "base" and not path.stem.startswith("_"):
            found |= import_module(f"invariants.fuzz.hicache.faults.{path.stem}").KINDS
    return found


def names(of_ranks: bool = False, of_storage: bool = False) -> tuple[str, ...]:
    """Names of the kinds for one core without storage, or of those that need several ranks or a
    storage."""
    return tuple(
        name
        for name, kind in load().items()
        if (kind.of_ranks, kind.of_storage) == (of_ranks, of_storage)
    )


def kind_of(name: str, site: str) -> Fault:
    """Returns the kind of this name, or NONE if it does not apply to this action. Raises
    CallerError for an unknown name.
    """
    if not name:
        return NONE
    kind = load().get(name)
    if kind is None:
        raise CallerError(f"fault: expected one of {', '.join(load())}, found {name!r}")
    return kind if site in kind.sites else NONE
