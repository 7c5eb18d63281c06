"""What a check is, what a violation says, and how checks are found.

Lives here: the base class that every file in `checks/` fills in, the exceptions that stop a run
with their exit codes, and the registry. Must not live here: any knowledge of a particular truth.

A check is written once, in one or more of these shapes; `watch` derives the incremental and the
full checker from it:

    node     local      a predicate over one node, its parent and its children
    totals   aggregate  an equation over sums that the book keeps by subtract-old, add-new
    issue    temporal   a rule at the moment an outcome appears, before the book files it
    see      temporal   a rule about an event or outcome, after the book has filed everything
    audit    any        what only a look at everything can tell
    still    temporal   what must hold once everything was released and drained

Page ownership is a bijection that the book keeps itself, by retract-then-claim; what clashes there
is read by the ownership checks in `totals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hicache.core.errors import About
from hicache.core.radix.node import Node
from hicache.core.view import CoreView

from .books.book import Book
from .books.mirror import NodeMirror

CRASH, INVARIANT, WRONG_BYTES, HAZARD, LIVENESS = 10, 11, 12, 13, 14
NONDETERMINISM, HARNESS = 16, 17


class Violation(AssertionError):
    """One sentence turned out false. `exit_code` says of which kind it is (0 is never used)."""

    exit_code = INVARIANT

    def __init__(
        self,
        check: str,
        sentence: str,
        equation: str,
        story: Sequence[str],
        replay: str,
        about: Sequence[About] = (),
    ) -> None:
        self.about = tuple(about)
        self.check = check
        self.sentence = sentence
        self.equation = equation
        self.story = tuple(story)
        self.replay = replay
        super().__init__(self.report())

    def report(self) -> str:
        lines = [f"{self.check}: {self.sentence}", f"    {self.equation}", "story:"]
        lines += [f"    {line}" for line in self.story] or ["    (nothing on record)"]
        lines.append(f"replay: {self.replay or '(no command given)'}")
        return "\n".join(lines)


class WrongBytes(Violation):
    exit_code = WRONG_BYTES


class NotAlive(Violation):
    exit_code = LIVENESS


class HarnessFault(Violation):
    """The incremental books differ from a recount: no verdict of this run can be trusted."""

    exit_code = HARNESS


KINDS: dict[int, type[Violation]] = {
    INVARIANT: Violation,
    WRONG_BYTES: WrongBytes,
    LIVENESS: NotAlive,
    HARNESS: HarnessFault,
}


class Broken(Exception):
    """Raised by `Check.fail`; `watch` turns it into a Violation with its story."""

    def __init__(self, check: Check, equation: str, about: Sequence[About]) -> None:
        super().__init__(equation)
        self.check = check
        self.equation = equation
        self.about = tuple(about)


class Check:
    """One sentence of truth about a core, recomputed from the books and the read-only view."""

    name: ClassVar[str]
    sentence: ClassVar[str]
    kind: ClassVar[int] = INVARIANT
    of_several: ClassVar[bool] = False  # says nothing where full attention is the only component
    watches: ClassVar[tuple[type, ...]] = ()

    def node(self, book: Book, mirror: NodeMirror, node: Node) -> None:
        """For each node that changed, and for each node in a full check."""

    def totals(self, book: Book, view: CoreView) -> None:
        """After each operation, and in a full check on the recounted books."""

    def issue(self, book: Book, item: Any, view: CoreView) -> None:
        """For each reply event before the core sees it, and each outcome before it is filed, of
        the types in `watches`."""

    def see(self, book: Book, item: Any, view: CoreView) -> None:
        """For each event and outcome of a type in `watches`, after the book filed everything."""

    def audit(self, book: Book, view: CoreView) -> None:
        """In a full check: what only a look at everything can tell."""

    def still(self, book: Book, view: CoreView) -> None:
        """At the end, where nothing is admitted or in flight any more."""

    def fail(self, equation: str, *about: About) -> NoReturn:
        """The sentence is false: here are the numbers, and whose story explains them."""
        raise Broken(self, equation, about)


def overrides(check: Check, shape: str) -> bool:
    """Whether the check has something to say in this shape (so that nothing else is called)."""
    return getattr(type(check), shape) is not getattr(Check, shape)


def check_names() -> list[str]:
    """The entries of the registry: file names in checks/, underscores as hyphens."""
    folder = Path(__file__).parent / "checks"
    names = (path.stem for path in folder.glob("*.py"))
    return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))


def load_check(name: str) -> Check:
    """The check of that registry name. Each file defines `check() -> Check`."""
    module = import_module(f"invariants.checks.{name.replace('-', '_')}")
    made: Check = module.check()
    return made
