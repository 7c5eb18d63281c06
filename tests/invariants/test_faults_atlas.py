"""The atlas of faults: enough kinds, each hits where it may, each is recovered from."""

from __future__ import annotations

import pytest

from hicache.core.config import Config
from hicache.core.errors import CallerError
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.faults import base as faults
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops import base
from invariants.fuzz.hicache.swarm import FAULTS
from invariants.fuzz.sequence import Act, Entry, Tape

OPS = base.load()


def test_the_swarm_draws_from_all_kinds_of_faults() -> None:
    assert len(faults.names()) >= 25
    assert faults.names() == FAULTS


def test_an_unknown_kind_is_refused_and_does_nothing_at_other_sites() -> None:
    with pytest.raises(CallerError, match="expected one of"):
        faults.kind_of("gremlin", "Load")
    assert faults.kind_of("engine stall", "Load") is faults.NONE


def _load(fault: str) -> Hand:
    """One prompt computed, evicted, and loaded again with this fault."""
    tokens = [[0, 2], [1, 2], [2, 2]]
    asks = {"request": 0, "tokens": tokens, "space": "", "whole": False}
    again = {**asks, "request": 1, "cold": ["full"], "chunk": 9}
    config = Config(2, (8,), (8,))
    entries = (
        Entry("arrive", asks),
        Entry("admit", {"request": 0, "chunk": 9}),
        Entry("quiesce", {}),
        Entry("finish", {"request": 0, "ahead": 0}),
        Entry("quiesce", {}),
        Entry("revisit", again, 1, True, (Act(3, 0, fault), Act(9, 0), Act(9, 0))),
        Entry("quiesce", {}),
    )
    outcome = play.replay(Tape(config, entries), OPS)
    assert outcome.failure is None, outcome.failure
    return outcome.hand


@pytest.mark.parametrize("name", [name for name in FAULTS if "Load" in faults.load()[name].sites])
def test_a_load_with_any_fault_is_recovered_from(name: str) -> None:
    hand = _load(name)
    hit = sum(n for key, n in hand.counts.items() if key == f"fault {name} Load")
    hit += sum(n for key, n in hand.counts.items() if key == f"fault {name} Prefill")
    assert hit


def test_a_failed_load_restarts_its_request_and_a_good_one_does_not() -> None:
    assert _load("submit error").probes.seen["restarted by LoadDone"] == 1
    assert _load("late").probes.seen["restarted by LoadDone"] == 0
