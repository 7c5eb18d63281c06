"""Faults of replies, and what a simulated storage has and says under them."""

from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Delete, Lookup, Piece, Store
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import DeleteDone, LookupDone, StorageReply, StoreDone
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.player import (
    FAULTS,
    NONE,
    Fault,
    Player,
    SimulatedStore,
    kind_of,
)
from invariants.fuzz.sequence import Act, Entry, FuzzSequence, dumps, loads

CONFIG = Config(1, (8, 8, 8), (8, 8, 8), ("full", "swa", "mamba"), storage=True)
DIGESTS = tuple(bytes([at]) for at in range(5))
LOOKUP = Lookup(1, 1, 0, DIGESTS, 0, (0, 2, 1))


def pieces(*runs: tuple[str, int, int]) -> tuple[Piece, ...]:
    return tuple(
        Piece(name, first, DIGESTS[first:end], np.arange(first, end, dtype=np.int64))
        for name, first, end in runs
    )


class Played:
    def __init__(self) -> None:
        self.simulated_store = SimulatedStore(CONFIG)

    def __call__(self, action: Any, kind: Fault = NONE) -> StorageReply:
        return self.simulated_store.reply(action, kind)

    def put(self, *runs: tuple[str, int, int], kind: Fault = NONE) -> StorageReply:
        return self(Store(2, pieces(*runs)), kind)


@pytest.mark.parametrize(
    ("fault", "says", "finds"),
    [
        ("", 4, 4),
        ("half of it", 2, 2),
        ("fail", 0, 0),
        ("stored, then lost", 4, 0),
        ("stored, not acknowledged", 0, 4),
    ],
)
def test_what_faults_of_a_store_say_and_keep(fault: str, says: int, finds: int) -> None:
    played = Played()
    assert played.put(("full", 0, 4), kind=kind_of(fault, "Store")) == StoreDone(2, says)
    assert played(Lookup(1, 1, 0, DIGESTS, 0, (0,))) == LookupDone(1, finds)


def test_a_storage_finds_what_it_has_and_a_fault_says_otherwise() -> None:
    played = Played()
    played.put(("full", 0, 5), ("swa", 0, 5), ("mamba", 4, 5))
    assert played(LOOKUP) == LookupDone(1, 5)
    assert played(LOOKUP, FAULTS["fail"]) == LookupDone(1, 0)
    assert played.simulated_store.boundaries(LOOKUP) == {5}
    assert played(Delete(4), FAULTS["fail"]) == DeleteDone(4, False)
    assert played(LOOKUP) == LookupDone(1, 5)
    assert played(Delete(4)) == DeleteDone(4, True)
    assert played(LOOKUP, FAULTS["lookup lies"]) == LookupDone(1, 5)
    assert played(LOOKUP) == LookupDone(1, 0)


# -- faults of replies, and sequences with a storage


def prompt(request: int) -> dict[str, Any]:
    return {"request": request, "tokens": [[1, 2], [2, 2]], "space": "", "whole": True}


def evicted(tier: int) -> Entry:
    return Entry("evict", {"tier": tier, "component": "full", "pages": 9})


def warm(fault: str) -> Player:
    """A prompt is computed, and comes again from host, and then from storage, with this fault."""
    acts = (Act(1, 1, fault),)
    life = [
        *(Entry("arrive", prompt(0)), Entry("wait", {"polls": 1})),
        *(Entry("admit", {"request": 0, "chunk": 9}), Entry("quiesce", {})),
        *(Entry("finish", {"request": 0, "ahead": 0}), Entry("quiesce", {}), evicted(0)),
        *(Entry("arrive", prompt(1)), Entry("admit", {"request": 1, "chunk": 9})),
        *(Entry("quiesce", {}), Entry("abort", {"request": 1}), evicted(0), evicted(1)),
        *(Entry("arrive", prompt(2)), Entry("wait", {"polls": 3})),
        *(Entry("admit", {"request": 2, "chunk": 9}), Entry("quiesce", {})),
    ]
    config = Config(1, (8,), (8,), storage=True)
    entries = tuple(item._replace(acts=acts) for item in life)
    sequence = loads(dumps(FuzzSequence(config, entries)))
    outcome = play.replay(sequence)
    assert outcome.failure is None, outcome.failure.text
    return outcome.player


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_each_fault_is_recovered_from_where_it_applies(fault: str) -> None:
    player = warm(fault)
    hit = {name.rpartition(" ")[2] for name in player.counts if name.startswith(f"fault {fault} ")}
    assert hit <= {*FAULTS[fault].sites} and hit if fault else not hit
    assert fault or player.probes.seen["Admitted on what was fetched"]


def test_drawn_sequences_with_a_storage_fetch_from_it_and_repeat() -> None:
    fetching = 0
    for seed in range(16):
        sample = sample_config(seed, ranks=1)
        if sample.config.storage:
            outcome = play.generate(sample, seed, 80, "off", differential=True)
            assert outcome.failure is None, outcome.failure.text
            fetching += outcome.player.probes.seen["Admitted on what was fetched"] > 0
            other = play.replay(loads(dumps(outcome.sequence)), "off").player
            assert other.events == outcome.player.events
            assert other.simulated_store.values == outcome.player.simulated_store.values
    assert fetching


def test_a_device_carries_out_nothing_for_a_storage() -> None:
    attaching = (Entry("attach", {"again": True}),)
    for config, entries in ((CONFIG, ()), (Config(1, (8,), (8,)), attaching)):
        with pytest.raises(CallerError, match="with a storage"):
            loads(dumps(FuzzSequence(config, entries, executor="device:1:1:0:8")))
