"""What is told of a failure: the first difference from the specification, at the wrong decision."""

from __future__ import annotations

from typing import Any

import pytest

from hicache.core.actions import Evicted
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.ledger import Pool
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import draw_swarm
from invariants.fuzz.hicache.operations import OPERATIONS
from invariants.fuzz.hicache.play import Comparison, replay_told
from invariants.fuzz.play import Failure
from invariants.fuzz.sequence import Entry, Tape

OPS = OPERATIONS
ONE = Tape(
    Config(1, (4,), (0,)),
    (Entry("arrive", {"request": 4, "tokens": [[2, 1]], "space": "", "whole": False}),),
)


def told(**more: Any) -> Failure:
    failure = replay_told(ONE, OPS, **more).failure
    assert failure is not None
    return failure


def test_the_sound_core_does_not_differ() -> None:
    for seed in (0, 1, 16):  # the last has a storage
        swarm = draw_swarm(seed)
        made: list[Comparison] = []
        play.generate(
            *(swarm, OPS, seed, 40, "off"),
            follow=lambda hand, to=made: to.append(Comparison(hand)),
        )
        assert made[0].first == ""


def test_what_both_remember_differs_at_the_wrong_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    give_back = Pool.give_back
    monkeypatch.setattr(Pool, "give_back", lambda pool, pages: give_back(pool, pages[:-1]))
    failure = told(name="one.jsonl", whole=True)
    assert failure.kind == "OWN-D"
    *_, first, title, operation, replay = failure.text.splitlines()
    assert first.startswith("first difference from the specification: event ")
    assert "free device pages of full: expected 4, found 3" in first
    assert title == "operations:"
    assert operation.startswith("    arrive request=4 ")
    assert replay == "replay: hicache fuzz --replay one.jsonl"


def test_an_outcome_that_is_missing_is_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Core.handle

    def silent(core: Core, event: Any) -> list[Any]:
        return [one for one in handle(core, event) if not isinstance(one, Evicted)]

    monkeypatch.setattr(Core, "handle", silent)
    assert "expected Evicted(tier=0, component=full, pages=[0]" in told().text


def test_a_clean_tape_has_nothing_to_tell() -> None:
    assert replay_told(ONE, OPS).failure is None
