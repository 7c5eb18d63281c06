"""ANSWERS sees pages and slots that an outcome must not hand out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Backup, Cached, Granted, Load, Prefill, StateSlots
from hicache.core.types import Pages, frozen
from invariants.base import Violation, load_check
from invariants.watch import Watch

from .life import Life, corner
from .spoiling import Fault, bend
from .test_planted import hybrid, spoil

HANDING_OUT = (Load, Backup, Prefill, Granted, Cached)
WITH_STATES = (Prefill, Granted, Cached)


def below(pages: Pages) -> Pages:
    return frozen(np.concatenate(([-2], pages[1:])))


def writable(pages: Pages) -> Pages:
    return pages.copy()


def working(slots: StateSlots) -> StateSlots:
    return slots._replace(working=-2)


def checkpoint_slot(slots: StateSlots) -> StateSlots:
    return slots._replace(checkpoint_slots=(slots.checkpoint_slots[0], -2))


def copied(slots: StateSlots) -> StateSlots:
    return slots._replace(source=0)


def of_pages(kind: type, change: Callable[[Pages], Pages]) -> Fault:
    """The last table, or what the first copy reads, is changed."""

    def bent(item: Any) -> Any:
        if kind in (Load, Backup):
            first = item.copies[0]
            first = first._replace(source=change(first.source))
            return item._replace(copies=(first, *item.copies[1:]))
        return item._replace(tables=(*item.tables[:-1], change(item.tables[-1])))

    return lambda state, event, outcomes: bend(outcomes, kind, bent)


def of_states(kind: type, change: Callable[[StateSlots], StateSlots]) -> Fault:
    def bent(item: Any) -> Any:
        return item._replace(states=tuple(map(change, item.states))) if item.states else None

    return lambda state, event, outcomes: bend(outcomes, kind, bent)


def found(fault: Fault) -> str:
    """What ANSWERS, asked alone, says of the first outcome that is spoiled; empty for nothing."""
    for seed in range(8):
        watch = Watch("every", checks=[load_check("answers")])
        life = Life(corner(hybrid()), seed, watch, content=False)
        done = spoil(life, fault, after=0)
        try:
            life.run(300)
        except Violation as violation:
            assert done
            return violation.equation
        assert not done, "it was spoiled, and nothing was said"
    return ""


def test_an_honest_core_is_not_accused() -> None:
    assert found(lambda state, event, outcomes: False) == ""


@pytest.mark.parametrize("change", [below, writable])
@pytest.mark.parametrize("kind", HANDING_OUT)
def test_pages_are_read_only_and_from_minus_one_up(
    kind: type, change: Callable[[Pages], Pages]
) -> None:
    assert "expected read-only page numbers" in found(of_pages(kind, change))


@pytest.mark.parametrize("change", [working, checkpoint_slot])
@pytest.mark.parametrize("kind", WITH_STATES)
def test_slots_are_from_minus_one_up(
    kind: type, change: Callable[[StateSlots], StateSlots]
) -> None:
    assert "expected slots from -1 up" in found(of_states(kind, change))


@pytest.mark.parametrize("kind", [Granted, Cached])
def test_only_a_pass_copies_states(kind: type) -> None:
    assert "copies only of a pass" in found(of_states(kind, copied))
