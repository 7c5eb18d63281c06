"""Sequences on a simulated device: clean on the real code, deterministic, and they see what is
wrong with the transfer controller, which replies alone cannot show."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache.core.config import Config
from hicache.core.errors import About
from hicache.core.types import Tier
from hicache.runtime.controller import Lane
from invariants.fuzz.hicache.device import DeviceHand, hand_of
from invariants.fuzz.hicache.draw import draw_swarm
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import failure_of, generate, replay, step
from invariants.fuzz.play import Failure, Outcome
from invariants.fuzz.sequence import Act, Entry, Tape
from sim.errors import WrongBytesError
from tests.configs import configured

OPS = OPERATIONS
DEVICE = "device:2:4:2:2"
CONFIG = configured(2, (10, 6, 4), (20, 8, 6), ("full", "swa", "mamba"), swa_window=4)
TIERS = (Tier.DEVICE, Tier.HOST)


def played(seed: int, operations: int = 60) -> Outcome:
    return generate(draw_swarm(seed, executor="device"), OPS, seed, operations)


def said(outcome: Outcome) -> tuple[object, ...]:
    """What two runs share that did the same."""
    hand = outcome.hand
    assert isinstance(hand, DeviceHand)
    memory, names = hand.memory, hand.config.components
    digests = [memory.digest((tier, name), 0) for tier in TIERS for name in names]
    counts = {name: n for name, n in hand.counts.items() if not name.startswith("op ")}
    return outcome.failure, hand.now, hand.events, counts, +hand.probes.seen, digests


def test_sequences_are_clean() -> None:
    for seed in range(5):
        outcome = played(seed)
        assert outcome.failure is None, outcome.failure.text


def test_an_entry_that_does_nothing_changes_nothing() -> None:
    first = played(5)
    idle = Entry("match", {"request": 1 << 19}, 0, False, (Act(700, 3, "fail"),))
    for at in (0, 7, 20, 40):
        entries = (*first.tape.entries[:at], idle, idle, *first.tape.entries[at:])
        assert said(replay(replace(first.tape, entries=entries), OPS)) == said(first)


def test_the_device_draws_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    first = played(5)

    def drawn(*_: object) -> int:
        raise AssertionError("a draw that is not in the tape")

    monkeypatch.setattr("sim.device.simulated.draw", drawn)
    assert said(played(5)) == said(first)


# -- what is looked at


def rested() -> DeviceHand:
    """After a prompt was computed, backed up, evicted and loaded."""
    prompt = {"tokens": [[0, 2], [1, 2], [2, 2]], "space": "", "whole": False}
    entries = (
        Entry("arrive", {"request": 0, **prompt}),
        Entry("admit", {"request": 0, "chunk": 9}),
        Entry("quiesce", {}),
        Entry("evict", {"tier": 0, "component": "full", "pages": 99}),
        Entry("arrive", {"request": 1, **prompt}),
        Entry("admit", {"request": 1, "chunk": 9}),
        Entry("quiesce", {}),
    )
    hand = hand_of(Tape(Config(2, (8,), (8,)), entries, executor=DEVICE))
    for entry in entries:
        step(hand, OPS, entry)
    assert isinstance(hand, DeviceHand)
    assert hand.core.view.pool(Tier.HOST).counts[2] == 3
    return hand


def spoil(hand: DeviceHand, tier: Tier, page: int) -> None:
    """Behind everybody's back."""
    rows = np.array([page])
    hand.memory.write((tier, "full"), rows, np.array([7], dtype=np.uint64), (0, 2), "a test")


@pytest.mark.parametrize("tier", TIERS)
def test_at_rest_every_page_matches_its_prefix(tier: Tier) -> None:
    hand = rested()
    hand.at_rest()
    node = next(iter(hand.core.view.nodes()))
    pages = node.pages[tier][0]
    assert pages is not None
    spoil(hand, tier, int(pages[0]))
    words = "expected the content of its prefix, found other bytes;"
    with pytest.raises(WrongBytesError, match=f"{tier.name.lower()} page .*{words}"):
        hand.at_rest()


@pytest.mark.parametrize("tier", TIERS)
def test_at_rest_free_pages_are_unchanged(tier: Tier) -> None:
    hand = rested()
    pool = hand.core.view.pool(tier)
    free = next(page for page in range(8) if pool.state[page] == 0)
    spoil(hand, tier, free)
    with pytest.raises(WrongBytesError, match="was written while it was free") as found:
        hand.at_rest()
    about = (About("page", free, int(tier), "full"),)
    assert failure_of(found.value, 3) == Failure(12, "POISON", str(found.value), 3, about)


def test_a_controller_that_never_answers_is_a_failure_of_liveness(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Lane, "ended", lambda self: [])
    failure = next(found for seed in range(9) if (found := played(seed).failure) is not None)
    assert (failure.code, failure.kind) == (14, "LIVENESS")
    assert "nothing is going to happen" in failure.text
