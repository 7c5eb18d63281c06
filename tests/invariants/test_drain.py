"""The drain: what is left when everything was let go."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest

from hicache.core import core as cores
from hicache.core.events import AdmitWanted, Finished
from hicache.core.state import State
from invariants.against import Against
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import drain
from invariants.fuzz.sequence import pack
from sim.errors import StuckError
from tests.configs import configured

OPS = OPERATIONS


def used(**settings: object) -> tuple[Hand, Against]:
    """A hand whose only request has ended."""
    hand = Hand(configured(1, (8,), (8,), **settings))
    against = Against(hand.config)
    hand.observe_last(against)
    args = {"request": 0, "tokens": pack([0, 1, 2]), "space": "", "whole": False}
    OPS["arrive"].play(hand, args)
    hand.settle()
    hand.feed(AdmitWanted(0, 3))
    hand.settle()
    hand.feed(Finished(0, hand.key(hand.jobs.pop(0), 3), 3))
    hand.settle()
    return hand, against


@pytest.mark.parametrize("settings", [{}, {"ttl_periods": 2}, {"storage": True}])
def test_a_clean_core_leaves_nothing(settings: dict[str, object]) -> None:
    hand, _ = used(**settings)
    assert any(hand.core.view.nodes())
    drain(hand)
    assert not any(hand.core.view.nodes())
    assert not hand.core.view.attached


# what a core could keep: where it is, and what is there then
KEPT: dict[str, Callable[[State], object]] = {
    "a count": lambda state: setattr(state, "backups", state.backups + 1),
    "a reservation": lambda state: operator.setitem(state.giving_up, 0, state.giving_up[0] + 1),
    "a place in a queue": lambda state: state.store_queue.update({9: [state.root]}),
    "a lock": lambda state: setattr(state.pools[1][0], "protected", 1),
    "a loan": lambda state: operator.setitem(state.pools[0][0].loans, 3, 1),
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_a_core_keeps_is_found(kept: str) -> None:
    hand, _ = used()
    hand._driver.observers = ()  # the checks of each event would see some of it before
    KEPT[kept](hand.core._state)
    with pytest.raises(StuckError, match=r"is still|missing"):
        drain(hand)


def test_a_copy_that_never_expires_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, _ = used(ttl_periods=1)
    hand._driver.observers = ()
    handlers = cores._HANDLERS | {cores.TimePassed: lambda state, event: None}
    monkeypatch.setattr(cores, "_HANDLERS", handlers)
    with pytest.raises(StuckError, match="did not expire"):
        drain(hand)
