"""What a kind of fault is, what it may ask of the hand that plays it, and the registry.

A file defines `KINDS`, name -> Fault. A kind hits one action of a tape (`Act.fault`) and acts where
it overrides a hook; the default of every hook is that nothing goes wrong. Two switches decide how
often: the swarm turns a kind on for a sequence, and gives it a chance per action. Must not live
here: what a single kind does.
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

from ..content import Content
from ..records import Job, Pending

SITES = ("Load", "Backup", "Prefill")
LOST = 1 << 60


class Player(Protocol):
    """What a fault may use of the hand: its time, its replies, its requests, its core's door."""

    now: int
    blind: int
    config: Config
    core: Core
    content: Content | None
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
    """One kind. sites: the actions that it can hit. fine: whether their reply is a good one.
    of_ranks: whether it takes several ranks to mean anything."""

    sites: tuple[str, ...] = SITES
    fine = True
    of_ranks = False

    def due(self, hand: Player, due: int) -> int:
        """When the reply is there, where it would have been at `due`."""
        return due

    def tie(self, number: int, tie: int) -> int:
        """Its place among those that are due with it."""
        return tie

    def arrives(self, at: int, count: int) -> bool:
        """Whether page `at` of `count` of a copy that failed arrived all the same."""
        return False

    def issued(self, hand: Player, one: Pending) -> None:
        """The operation that issued the action is over."""

    def before(self, hand: Player, one: Pending) -> None:
        """The work is done, and the reply not yet taken."""

    def after(self, hand: Player, one: Pending, reply: Reply) -> None:
        """The reply was taken."""


NONE = Fault()


@cache
def load() -> dict[str, Fault]:
    """Every kind, by name."""
    found: dict[str, Fault] = {}
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if path.stem != "base" and not path.stem.startswith("_"):
            found |= import_module(f"invariants.fuzz.faults.{path.stem}").KINDS
    return found


def names(of_ranks: bool = False) -> tuple[str, ...]:
    """Those of one core; or those that take several ranks."""
    return tuple(name for name, kind in load().items() if kind.of_ranks == of_ranks)


def kind_of(name: str, site: str) -> Fault:
    """The kind that an act names, or none where it does not apply to this action."""
    if not name:
        return NONE
    kind = load().get(name)
    if kind is None:
        raise CallerError(f"fault: expected one of {', '.join(load())}, found {name!r}")
    return kind if site in kind.sites else NONE
