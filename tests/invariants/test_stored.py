"""Sequences whose storage is real: threads, host pools and a small store under strain.

Mistakes in what carries out the actions are found within a few sequences."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hicache.memory.pools import StoredPool
from hicache.runtime import storage
from hicache.storage.file_index import Index
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.play import generate
from invariants.fuzz.play import Played
from invariants.fuzz.sequence import FILES

SEEDS = (56, 59, 69, 75, 176, 199)  # of sequences with a store of files


def played() -> Iterator[Played]:
    for seed in SEEDS:
        sample = sample_config(seed)
        assert sample.executor == FILES
        yield generate(sample, seed, 120, "off")


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
    return lambda index, rows, stamp: set()


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
