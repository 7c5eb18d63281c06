"""A sound core passes every check, the shadow state equals a recount at every event, and the
specification beside the core notices a decision that is not the recorded one. That each check finds
its bug is in tests/planted."""

from functools import cache
from typing import Any, get_args, get_type_hints

import pytest

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError, CoreBug
from invariants.base import SpecMismatch, Violation, load_check
from invariants.checker import Checker
from invariants.differential import DifferentialChecker

from .playing import RECORDINGS, SHORT, events_of, play, recorded


class Bent:
    """A core whose outcomes are changed behind it, once, as soon as `fault` can: it gets the state,
    the event and the outcomes, and says whether it has done so. at: number of that event."""

    def __init__(self, config: Config, fault: Any, after: int = 0) -> None:
        self.core, self.fault, self.after = Core(config), fault, after
        self.view, self.events, self.at = self.core.view, 0, 0

    def handle(self, event: Any) -> list[Any]:
        outcomes = self.core.handle(event)
        self.events += 1
        if not self.at and self.events > self.after:
            state = self.core._state
            self.at = self.events if self.fault(state, event, outcomes) else 0
        return outcomes


def found_in(name: str, core: Any, observers: list[Any]) -> tuple[str, int]:
    """What the observers find in a recording, and at which event; "" if they find nothing."""
    events = 0
    try:
        for _ in play(recorded(name), core, observers):
            events += 1
    except (Violation, SpecMismatch) as result_of:
        return getattr(result_of, "check", "") or result_of.kind, events + 1
    except (CallerError, CoreBug, KeyError, AttributeError, IndexError, TypeError):
        assert core.at, "a sound core"
    return "", 0


@pytest.mark.parametrize("name", [*RECORDINGS, *SHORT])
def test_a_sound_core_keeps_every_law_and_the_shadow_state_equals_a_recount(name: str) -> None:
    recording = recorded(name)
    core, checker, differential = (
        Core(recording.config),
        Checker("every"),
        DifferentialChecker(recording.config),
    )
    for _ in play(recording, core, [checker, differential]):
        checker.audit(core.view)
    checker.finish(core.view)
    events = len(events_of(recording))
    assert checker.incremental == differential.compared == events
    assert checker.full > events
    assert checker.violations == 0


def test_a_locked_node_outside_of_the_tree_is_found() -> None:
    """By the one check of which no bug is planted (tests/planted)."""

    def lose(state: Any, event: Any, outcomes: list[Any]) -> bool:
        stack = [*state.root.children.values()]
        while stack:
            node = stack.pop()
            stack += node.children.values()
            if node.locks[0][0] and not node.children:
                del node.parent.children[node.label]
                state.touched[node.id], node.parent = node, None
                return True
        return False

    core = Bent(recorded("wide").config, lose)
    check = load_check("pin-node")
    result, at = found_in("wide", core, [Checker("every", checks=[check])])
    assert (result, at >= core.at) == (check.name, True)


NAMES = {"transfer", "request", "pin", "after"}  # numbers that the specification chooses itself
KINDS = sorted(kind.__name__ for kind in get_args(Outcome))


def wrong(kind: str, field: str) -> Any:
    """A fault: the first outcome of this kind is lost, or has one more in this field."""

    def fault(state: Any, event: Any, outcomes: list[Any]) -> bool:
        for at, outcome in enumerate(outcomes):
            if type(outcome).__name__ == kind:
                if not field:
                    del outcomes[at]
                    return True
                outcomes[at] = outcome._replace(
                    **{field: type(value := getattr(outcome, field))(value + 1)}
                )
                return True
        return False

    return fault


@cache
def said_in(name: str) -> set[str]:
    """The kinds of outcomes in a recording."""
    recording = recorded(name)
    answers = play(recording, Core(recording.config))
    return {type(outcome).__name__ for _, outcomes in answers for outcome in outcomes}


@pytest.mark.parametrize("kind", KINDS)
def test_the_specification_notices_at_once_what_is_lost_or_one_too_many(kind: str) -> None:
    record = next(item for item in get_args(Outcome) if item.__name__ == kind)
    hints = get_type_hints(record)
    fields = [name for name, hint in hints.items() if hint is int and name not in NAMES]
    for field in ("", *fields):
        having = [name for name in RECORDINGS if kind in said_in(name)]
        assert having
        for name in having[:3]:
            config = recorded(name).config
            core = Bent(config, wrong(kind, field))
            result, at = found_in(name, core, [DifferentialChecker(config)])
            assert 0 < at == core.at, (name, field, result)
