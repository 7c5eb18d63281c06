"""The fuzzer's storage: what it answers, what its faults do, and that drawn sequences use it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Delete, Lookup, Outcome, Piece, Prefetched, Store
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import DeleteDone, Event, LookupDone, StorageReply, StoreDone
from hicache.core.types import Tier
from hicache.core.view import CoreView
from invariants.fuzz import sequence as tapes
from invariants.fuzz.hicache.content import Content, Held, WrongContent
from invariants.fuzz.hicache.faults.base import NONE, Fault, load
from invariants.fuzz.hicache.generate import weights_of
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import load as load_ops
from invariants.fuzz.hicache.play import generate, replay
from invariants.fuzz.hicache.shelf import Shelf
from invariants.fuzz.hicache.swarm import draw_swarm
from invariants.fuzz.sequence import Act, Entry, Tape

OPS = load_ops()
WEIGHTS = weights_of(OPS)
KINDS = load()
CONFIG = Config(1, (8, 8, 8), (8, 8, 8), ("full", "swa", "mamba"), storage=True)
DIGESTS = tuple(bytes([at]) for at in range(5))
NO_STORAGE = {
    one.name: one.default
    for one in fields(Config)
    if one.name.startswith(("storage", "prefetch_", "max_stores", "store_"))
}
LOOKUP = Lookup(1, 1, 0, DIGESTS, 0, (0, 2, 1))


def pieces(*runs: tuple[str, int, int]) -> tuple[Piece, ...]:
    return tuple(
        Piece(name, first, DIGESTS[first:end], np.arange(first, end, dtype=np.int64))
        for name, first, end in runs
    )


class Played:
    """A shelf with the contents of host pages."""

    def __init__(self) -> None:
        self.shelf, self.content = Shelf(CONFIG), Content(CONFIG)

    def __call__(self, action: Any, kind: Fault = NONE, now: int = 0) -> StorageReply:
        self.shelf.begin(action, self.content)
        return self.shelf.reply(action, kind, now, self.content)

    def put(self, *runs: tuple[str, int, int], kind: Fault = NONE) -> StorageReply:
        for index, host in enumerate(self.content.pages[Tier.HOST]):
            host[:] = [Held([index], depth) for depth in range(8)]
        return self(Store(2, pieces(*runs)), kind)


def test_a_page_that_changes_while_it_is_stored_is_found() -> None:
    played = Played()
    store = Store(2, pieces(("full", 0, 2)))
    played.shelf.begin(store, played.content)
    played.content.pages[Tier.HOST][0][1] = Held([1], 1)
    with pytest.raises(WrongContent, match="page 1 changed"):
        played.shelf.reply(store, NONE, 0, played.content)


@pytest.mark.parametrize(
    ("fault", "says", "finds"),
    [
        ("", 4, 4),
        ("half of it", 2, 2),
        ("fail", 0, 0),
        ("stored, then lost", 4, 0),
        ("stored in part", 4, 2),
        ("stored, not acknowledged", 0, 4),
    ],
)
def test_what_faults_of_a_store_say_and_keep(fault: str, says: int, finds: int) -> None:
    played = Played()
    kind = KINDS[fault] if fault else NONE
    assert played.put(("full", 0, 4), kind=kind) == StoreDone(2, says)
    lookup = LOOKUP._replace(trailing_pages=(0, 0, 0))
    only = Shelf(Config(1, (8,), (8,), storage=True))
    only.values = played.shelf.values
    assert only.found(lookup.digests, (0,)) == finds


def test_a_dead_storage_answers_0_and_lives_again() -> None:
    played = Played()
    played.put(("full", 0, 5), ("swa", 0, 5), ("mamba", 4, 5))
    played.shelf.dead_until = 10
    assert played(LOOKUP, now=9) == LookupDone(1, 0)
    assert played(Delete(4), now=9) == DeleteDone(4, False)
    assert played(LOOKUP, now=10) == LookupDone(1, 5)
    assert played(LOOKUP, KINDS["lookup lies"], now=10) == LookupDone(1, 5)
    assert played(Delete(4), now=10) == DeleteDone(4, True)
    assert played(LOOKUP, KINDS["lookup lies"], now=10) == LookupDone(1, 5)
    assert played(LOOKUP, now=10) == LookupDone(1, 0)


class Published:
    """Counts the prefetches that brought something."""

    def __init__(self) -> None:
        self.count = 0

    def on_event(self, event: Event, view: CoreView) -> None:
        """Nothing is counted before the answer."""

    def on_outcomes(self, event: Event, outcomes: list[Outcome], view: CoreView) -> None:
        self.count += sum(isinstance(one, Prefetched) and one.fetched_pages > 0 for one in outcomes)


def with_storage(first: int, count: int) -> list[tuple[int, Any]]:
    """The first seeds from `first` on whose sequence has a storage."""
    found: list[tuple[int, Any]] = []
    while len(found) < count:
        swarm = draw_swarm(first, WEIGHTS, ranks=1)
        if swarm.config.storage:
            found.append((first, swarm))
        first += 1
    return found


def test_most_sequences_with_a_storage_fetch_from_it_and_the_core_agrees() -> None:
    fetching = 0
    for seed, swarm in with_storage(60_000, 8):
        published = Published()

        def follow(hand: Hand, published: Published = published) -> None:
            hand.observe_last(published)

        outcome = generate(swarm, OPS, seed, 100, "off", against=True, follow=follow)
        assert outcome.failure is None, outcome.failure.text
        fetching += published.count > 0
    assert fetching >= 4


def test_only_sequences_with_a_storage_draw_its_operations_and_faults() -> None:
    seen = set()
    for seed in range(60):
        swarm = draw_swarm(seed, WEIGHTS)
        of_storage = {name for name, _ in swarm.weights if not WEIGHTS[name]}
        of_storage |= {name for name, _ in swarm.faults if KINDS[name].of_storage}
        seen.add(bool(of_storage))
        if not of_storage:
            assert swarm.config == replace(swarm.config, **NO_STORAGE)
    assert seen == {False, True}


def test_a_tape_with_a_storage_repeats_and_survives_its_file() -> None:
    ((seed, swarm),) = with_storage(61_000, 1)
    outcome = generate(swarm, OPS, seed, 60, "off", against=True)
    again = tapes.loads(tapes.dumps(outcome.tape))
    assert again == outcome.tape
    other = replay(again, OPS, "off", against=True)
    assert other.failure is None
    assert other.hand.events == outcome.hand.events
    assert other.hand.shelf.values.keys() == outcome.hand.shelf.values.keys()


ONE = Config(1, (8,), (8,), storage=True)
PROMPT = [[1, 2], [2, 2]]
LIFE = (
    Entry("arrive", {"request": 0, "tokens": PROMPT, "space": "", "whole": True}),
    Entry("wait", {"polls": 1}),
    Entry("admit", {"request": 0, "chunk": 9}),
    Entry("wait", {"polls": 3}),
    Entry("finish", {"request": 0, "ahead": 0}),
    Entry("quiesce", {}),
)
WARM = {
    "request": 1,
    "tokens": PROMPT,
    "space": "",
    "whole": True,
    "cold": [],
    "chunk": 9,
    "empty": "both",
    "late": 2,
}


def played(*entries: Entry, config: Config = ONE) -> Hand:
    outcome = replay(Tape(config, entries), OPS)
    assert outcome.failure is None, outcome.failure.text
    return outcome.hand


def test_a_prompt_is_warm_after_both_tiers_were_emptied() -> None:
    published = Published()
    tape = Tape(ONE, (*LIFE, Entry("warm", WARM)))
    failure = replay(tape, OPS, follow=lambda hand: hand.observe_last(published)).failure
    assert failure is None, failure.text
    assert published.count == 1


@pytest.mark.parametrize("fault", [name for name, kind in KINDS.items() if kind.of_storage])
def test_each_fault_of_a_storage_is_played_clean(fault: str) -> None:
    acts = (Act(1, 1, fault),)
    life = tuple(entry._replace(acts=acts) for entry in LIFE)
    hand = played(*life, Entry("warm", WARM, acts=acts), Entry("quiesce", {}, acts=acts))
    assert any(name.startswith(f"fault {fault} ") for name in hand.counts)


@pytest.mark.parametrize("kind", ["reply to nothing", "limit of nobody", "detach twice"])
def test_forbidden_events_of_storage_are_refused(kind: str) -> None:
    detached = Entry("attach", {"again": False})
    hand = played(detached, Entry("mistaken", {"kind": kind, "way": 1}))
    assert hand.counts["misuse refused"] == 1


def test_a_device_carries_out_nothing_for_a_storage() -> None:
    tape = Tape(ONE, (), executor="device:1:1:0:8")
    with pytest.raises(CallerError, match="with a storage"):
        tapes.loads(tapes.dumps(tape))
    attaching = replace(tape, config=replace(ONE, storage=False), entries=(Entry("attach", {}),))
    with pytest.raises(CallerError, match="with a storage"):
        tapes.loads(tapes.dumps(attaching))
