"""Observes one core: records every operation in the shadow state and runs the checks.

Lives here: when each check runs, the levels, and turning a failure into a report.

    every    records each operation and runs every check that may be affected; a full recount
             follows every 64 operations (fewer on large trees, see `audit_every`), after each
             failed reply, after each flush, and at the end
    sampled  only remembers operations; recounts the state from the view at the same interval and
             runs the checks that need no history (nodes, sums, queues)
    off      does nothing
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NoReturn, get_args

from hicache.core.actions import Outcome
from hicache.core.errors import About
from hicache.core.events import Event, FetchDone, Flushed, StoreDone
from hicache.core.view import CoreView

from . import base
from .differential import DifferentialChecker
from .shadow import story
from .shadow.recount import Mismatch, compare, recount
from .shadow.shadow import Shadow
from .shadow.transfers import ACTION_OF

AUDIT_EVERY = 64
_EVENTS = frozenset(get_args(Event))
Level = Literal["every", "sampled", "off"]
Method = Callable[..., None]


def _failed(event: Event) -> bool:
    """Whether it is the reply to an action that failed. A lookup that finds nothing is none."""
    if type(event) is FetchDone or type(event) is StoreDone:
        return not event.pages
    return type(event) in ACTION_OF and getattr(event, "ok", True) is False


class Checker:
    """Observes one core during its whole life. Raises Violation to stop the run.

    seed: with `every`, the specification judges windows of events that it draws (see
    `DifferentialChecker`); None: none."""

    def __init__(
        self,
        level: Level = "every",
        replay_command: str = "",
        checks: Sequence[base.Check] | None = None,
        seed: int | None = None,
    ) -> None:
        self.level = level
        self.replay_command = replay_command
        self.checks = (
            [base.load_check(name) for name in base.check_names()] if checks is None else checks
        )
        self.incremental = 0
        self.full = 0
        self.violations = 0
        self.operations = 0
        self.shadow: Shadow | None = None
        self.seed = seed
        self.differential: DifferentialChecker | None = None
        self._story = story.Story()
        self._event: Event | None = None  # the last event given to the core
        self._since_audit = 0
        self._audited = 0  # number of nodes at the last recount
        self._ask()

    def _ask(self) -> None:
        """Collects the methods of the checks that are called at each point."""
        self._nodes = self._methods("node")
        self._totals = self._methods("totals")
        self._unchanged = self._methods("totals", of_changes=False)
        self._audits = self._methods("audit")
        self._before = self._by_type("before")
        self._first = {kind: asks for kind, asks in self._before.items() if kind in _EVENTS}
        self._after = self._by_type("after")

    def _methods(self, method: str, of_changes: bool = True) -> list[Method]:
        checks = [check for check in self.checks if of_changes or not check.of_changes]
        return [getattr(check, method) for check in checks if base.overrides(check, method)]

    def _by_type(self, method: str) -> dict[type, list[Method]]:
        table: dict[type, list[Method]] = {}
        for check in self.checks:
            if base.overrides(check, method):
                for kind in check.items:
                    table.setdefault(kind, []).append(getattr(check, method))
        return table

    def on_event(self, event: Event, view: CoreView) -> None:
        if self.level == "off":
            return
        self._event = event
        if self.shadow is None:
            self.shadow = Shadow(view)
            if self.shadow.width == 1:
                self.checks = [check for check in self.checks if not check.of_several]
                self._ask()
            if self.level == "every" and self.seed is not None:
                self.differential = DifferentialChecker(view.config, self.seed)
        if self.level == "every":
            if self.differential is not None:
                self._guard(self.differential.on_event, event, view)
            self.shadow.before(event)
            if type(event) in self._first:
                self._guard(self._ask_before, event, view)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        if self.level == "off" or self.shadow is None:
            return
        self.operations += 1
        self._since_audit += 1
        self._story.add(self.operations, event, outcomes, tuple(view.touched))
        if self.level == "every":
            self.incremental += 1
            self._guard(self._step, event, outcomes, view)
            if self.differential is not None:
                self._guard(self.differential.on_outcomes, event, outcomes, view)
        else:
            self.shadow.glance(event)
        if _failed(event) or type(event) is Flushed or self._since_audit >= self.audit_every:
            self.audit(view)

    @property
    def audit_every(self) -> int:
        """Operations between two recounts. A recount costs more on a large tree, so the interval
        grows."""
        return max(AUDIT_EVERY, self._audited)

    def audit(self, view: CoreView) -> None:
        """Recounts the state: the shadow state must equal it, and every check must hold on it."""
        self._since_audit = 0
        if self.level == "off" or self.shadow is None:
            return
        self.full += 1
        self._guard(self._recount, view)

    def finish(self, view: CoreView) -> None:
        """Runs a last audit, and the checks of quiescence if nothing is admitted or in flight."""
        self.audit(view)
        if self.shadow is None or self.level != "every":
            return
        if self.differential is not None:
            self._guard(self.differential.compare_state, "at the end", (), view)
        if not self.shadow.transfers.open and not self.shadow.requests.admitted:
            self._guard(self._be_still, view)

    def story_of(self, whom: Sequence[About]) -> list[str]:
        """The last operations that concern any of these objects, and the last event."""
        return [*self._lines(whom), *story.last_event(self._story, self._event)]

    def _ask_before(self, event: Event, view: CoreView) -> None:
        for ask in self._first[type(event)]:
            ask(self.shadow, event, view)

    def _step(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        shadow = self.shadow
        assert shadow is not None
        shadow.after(event, outcomes, view, self._before)
        asks = self._nodes
        for record in shadow.nodes.dirty.values():
            node = record.node
            for ask in asks:
                ask(shadow, record, node)
        for ask in self._totals if shadow.changed else self._unchanged:
            ask(shadow, view)
        after = self._after
        for item in (event, *outcomes):
            if type(item) in after:
                for ask in after[type(item)]:
                    ask(shadow, item, view)
        for pages in shadow.changed:
            pages.settle()

    def _recount(self, view: CoreView) -> None:
        shadow = self.shadow
        assert shadow is not None
        counted = recount(view, shadow, history=self.level == "every")
        self._audited = len(counted.nodes.by_id)
        if self.level == "every":
            compare(shadow, counted)
        for record in counted.nodes.by_id.values():
            for ask in self._nodes:
                ask(counted, record, record.node)
        for ask in self._totals:
            ask(counted, view)
        if self.level == "every":
            for ask in self._audits:
                ask(shadow, view)

    def _be_still(self, view: CoreView) -> None:
        assert self.shadow is not None
        for check in self.checks:
            check.at_rest(self.shadow, view)

    def _lines(self, whom: Sequence[About]) -> list[str]:
        return self._story.about(whom, self.shadow.kinds[0].name if self.shadow is not None else "")

    def _guard(self, work: Callable[..., None], *args: Any) -> None:
        """Runs checks; turns a failure into a Violation with the story of its objects."""
        try:
            work(*args)
        except base.CheckFailed as broken:
            check = broken.check
            kind, named = base.KINDS[check.kind], (check.name, check.sentence)
            self._report(kind, *named, broken.equation, broken.about)
        except base.SpecMismatch as broken:
            self._report(base.Violation, broken.kind, base.SPEC_SENTENCE, broken.text, broken.about)
        except Mismatch as broken:
            sentence = (
                "The shadow state that was kept step by step equals a recount of the whole state."
            )
            self._report(base.KINDS[base.HARNESS], "AUDIT", sentence, broken.equation, broken.about)

    def _report(
        self,
        kind: type[base.Violation],
        name: str,
        sentence: str,
        text: str,
        about: Sequence[About],
    ) -> NoReturn:
        self.violations += 1
        raise kind(name, sentence, text, self._lines(about), self.replay_command, about) from None
