"""Sequences whose storage is real: threads, host pools and a small store under strain.

Mistakes in what carries out the actions are found within a few sequences."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Delete, Lookup, Piece, Store
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import DeleteDone, LookupDone, StorageReply, StoreDone
from hicache.memory.pools import StoredPool
from hicache.runtime import storage
from hicache.storage.file_index import Index
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.play import generate
from invariants.fuzz.hicache.player import (
    FAULTS,
    NONE,
    Fault,
    Player,
    SimulatedStore,
    kind_of,
)
from invariants.fuzz.play import Played
from invariants.fuzz.sequence import FILES, Act, Entry, FuzzSequence, dumps, loads

SEEDS = (56, 59, 69, 75, 176, 199)  # of sequences with a store of files


def played() -> Iterator[Played]:
    for seed in SEEDS:
        sample = sample_config(seed)
        assert sample.sequence.executor == FILES
        yield generate(sample, 120, "off")


def one_page_too_many(real: Callable[..., Any]) -> Callable[..., Any]:
    def fetch(task: Any, action: Any) -> None:
        real(task, action)
        task.progress = min(action.pages, task.progress + 1)

    return fetch


def of_one_pool(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda context, name, *others: real(context, "all", *others)


def the_last_is_left_out(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda items, *more: real(list(items)[:-1] or items, *more)


def into_the_first_page(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda pool, page, source: real(pool, 0, source)


def always(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda batch, statuses: [True] * len(batch)


def of_reserved_blocks(real: Callable[..., Any]) -> Callable[..., Any]:
    def evict(index: Index) -> bool:
        index._free([row[0] for row in index._base.execute("SELECT id FROM stored WHERE owner")])
        return bool(real(index))

    return evict


def although_blocks_were_given_away(real: Callable[..., Any]) -> Callable[..., Any]:
    return lambda index, rows: set()


BUGS = (
    (storage, "fetch", one_page_too_many),
    (storage, "batches", the_last_is_left_out),
    (storage, "_fine", always),
    (storage, "page_keys", of_one_pool),
    (StoredPool, "load", into_the_first_page),
    (Index, "_evict_coldest", of_reserved_blocks),
    (Index, "moved", although_blocks_were_given_away),
)


def test_threads_and_files_do_what_the_simulated_store_says() -> None:
    compared = 0
    for outcome in played():
        assert outcome.failure is None, outcome.failure.text
        compared += outcome.player.real_store.compared
    assert compared > 50


@pytest.mark.parametrize(
    ("where", "name", "bug"), BUGS, ids=lambda item: getattr(item, "__name__", item)
)
def test_a_mistake_in_what_carries_out_actions_is_found(
    where: Any, name: str, bug: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, bug(getattr(where, name)))
    assert any(outcome.failure for _ in range(3) for outcome in played())  # threads meet at times


CONFIG = Config(1, (8, 8, 8), (8, 8, 8), ("full", "swa", "mamba"), storage=True)
DIGESTS = tuple(bytes([at]) for at in range(5))
LOOKUP = Lookup(1, 1, 0, DIGESTS, 0, (0, 2, 1))


def pieces(*runs: tuple[str, int, int]) -> tuple[Piece, ...]:
    return tuple(
        Piece(name, first, DIGESTS[first:end], np.arange(first, end, dtype=np.int64))
        for name, first, end in runs
    )


class Stored:
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
    stored = Stored()
    assert stored.put(("full", 0, 4), kind=kind_of(fault, "Store")) == StoreDone(2, says)
    assert stored(Lookup(1, 1, 0, DIGESTS, 0, (0,))) == LookupDone(1, finds)


def test_a_storage_finds_what_it_has_and_a_fault_says_otherwise() -> None:
    stored = Stored()
    stored.put(("full", 0, 5), ("swa", 0, 5), ("mamba", 4, 5))
    assert stored(LOOKUP) == LookupDone(1, 5)
    assert stored(LOOKUP, FAULTS["fail"]) == LookupDone(1, 0)
    assert stored.simulated_store.boundaries(LOOKUP) == {5}
    assert stored(Delete(4), FAULTS["fail"]) == DeleteDone(4, False)
    assert stored(LOOKUP) == LookupDone(1, 5)
    assert stored(Delete(4)) == DeleteDone(4, True)
    assert stored(LOOKUP, FAULTS["lookup lies"]) == LookupDone(1, 5)
    assert stored(LOOKUP) == LookupDone(1, 0)


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
        if sample.sequence.config.storage:
            outcome = play.generate(sample, 80, "off", differential=True)
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
