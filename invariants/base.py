"""The base class of checks, the violations that they report, and the lookup of checks by name.

Lives here: the class from which every check in `checks/` derives, the exceptions that end a run
with their exit codes, and the registry.

A check overrides one or more of these methods; `checker` runs them incrementally and in full:

    node     a condition on one node, its parent and its children, after an event that reached it
    totals   an equation over sums that the shadow state updates incrementally, after each event
    before   a rule about an event before the core has it, or an outcome before it is recorded
    after    a rule about an event or outcome, after the shadow state has recorded all of them
    audit    a condition that needs a pass over the whole state; now and then
    at_rest  a condition that holds at the end, if nothing is admitted or in flight

The shadow state keeps one owner for every page; checks report clashes in `totals`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.node import Node
from hicache.core.view import CoreView

from .shadow.record import NodeRecord
from .shadow.shadow import Shadow

CRASH, INVARIANT, WRONG_BYTES, HAZARD, LIVENESS = 10, 11, 12, 13, 14
NONDETERMINISM, HARNESS = 16, 17

SPEC_SENTENCE = "The core answers each event as the specification does."


class Violation(AssertionError):
    """A check failed. exit_code: the kind of violation (never 0)."""

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


class SpecMismatch(AssertionError):
    """The core differs from the specification. kind: equal for differences of the same sort. at:
    index of the outcome that differs. expected, actual: the outcomes, None where there is none."""

    def __init__(
        self,
        kind: str,
        text: str,
        about: Sequence[About],
        at: int = -1,
        expected: Outcome | None = None,
        actual: Outcome | None = None,
    ) -> None:
        super().__init__(f"{kind}: {SPEC_SENTENCE}\n    {text}")
        self.kind = kind
        self.text = text
        self.about = tuple(about)
        self.at = at
        self.expected = expected
        self.actual = actual


class Deviation(AssertionError):
    """A pass of a model gave other results than it must. kind: equal for those of one sort."""

    exit_code = WRONG_BYTES

    def __init__(self, kind: str, text: str, *about: About) -> None:
        super().__init__(text)
        self.kind = kind
        self.about = about


class WrongBytes(Violation):
    exit_code = WRONG_BYTES


class NotAlive(Violation):
    exit_code = LIVENESS


class HarnessFault(Violation):
    """The incremental shadow state differs from a recount, so the results of this run are not
    valid."""

    exit_code = HARNESS


KINDS: dict[int, type[Violation]] = {
    INVARIANT: Violation,
    WRONG_BYTES: WrongBytes,
    LIVENESS: NotAlive,
    HARNESS: HarnessFault,
}


class CheckFailed(Exception):
    """Raised by `Check.fail`; `checker` turns it into a Violation with a story."""

    def __init__(self, check: Check, equation: str, about: Sequence[About]) -> None:
        super().__init__(equation)
        self.check = check
        self.equation = equation
        self.about = tuple(about)


class Check:
    """One property of a core, computed from the shadow state and the read-only view."""

    name: ClassVar[str]
    sentence: ClassVar[str]
    kind: ClassVar[int] = INVARIANT
    of_several: ClassVar[bool] = False  # does not apply if full attention is the only component
    of_changes: ClassVar[bool] = False  # its totals look at pools alone whose pages changed
    items: ClassVar[tuple[type, ...]] = ()  # for which `before` and `after` are called

    def node(self, shadow: Shadow, record: NodeRecord, node: Node) -> None:
        """Called for each changed node, and for each node in a full check."""

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        """Called after each operation, and in a full check with the recounted shadow state."""

    def before(self, shadow: Shadow, item: Any, view: CoreView) -> None:
        """Called with an event of `items` before the core has it, an outcome before its record."""

    def after(self, shadow: Shadow, item: Any, view: CoreView) -> None:
        """Called with each event and outcome of `items` when the shadow has recorded all."""

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        """Called in a full check, for conditions that need the whole state."""

    def at_rest(self, shadow: Shadow, view: CoreView) -> None:
        """Called at the end, if nothing is admitted or in flight."""

    def fail(self, equation: str, *about: About) -> NoReturn:
        """Reports a failure with its figures. about: the objects whose story explains it."""
        raise CheckFailed(self, equation, about)


def overrides(check: Check, method: str) -> bool:
    """Whether the check overrides this method; other methods are not called."""
    return getattr(type(check), method) is not getattr(Check, method)


@cache
def _checks() -> dict[str, type[Check]]:
    """All checks by name: each file of checks/ lists its own in CHECKS."""
    files = sorted((Path(__file__).parent / "checks").glob("[!_]*.py"))
    modules = (import_module(f"invariants.checks.{path.stem}") for path in files)
    result = {check.name.lower(): check for module in modules for check in module.CHECKS}
    return dict(sorted(result.items()))


def check_names() -> list[str]:
    """Names of all checks, in lower case."""
    return list(_checks())


def load_check(name: str) -> Check:
    """Returns a new check of that name."""
    return _checks()[name]()
