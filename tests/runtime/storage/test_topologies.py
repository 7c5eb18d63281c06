"""Small topologies, all of them: what any rank reads is written by exactly one rank."""

from __future__ import annotations

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from hicache.core.actions import Lookup
from hicache.core.events import FetchDone, LookupDone, StoreDone
from hicache.runtime.storage import PagePool, Rank, StoredPages
from hicache.storage.keys import context_key

from .rig import DIGESTS, Gated, bench, context_of, hybrid, piece

POOLS = {"sharded": ["kv"], "replicated": ["latent"], "both": ["kv", "latent", "indexer"]}
TOPOLOGIES = [
    (ranks, stages, own, kind)
    for ranks, stages, own, kind in product((1, 2, 3, 4), (1, 2), (False, True), POOLS)
]


def pool(name: str) -> PagePool:
    return cast(PagePool, SimpleNamespace(name=name, page_bytes=8, shared=name != "kv"))


def topology(ranks: int, stages: int, own: bool, kind: str) -> dict[int, tuple[int, StoredPages]]:
    """Each rank's pages, and the number of its store."""
    pools = {"full": [pool(name) for name in POOLS[kind]]}
    places = [
        Rank(rank, ranks, stage, stages, own)
        for stage, rank in product(range(stages), range(ranks))
    ]
    context = context_of(hybrid())
    return {
        number: (number if own else 0, StoredPages(context, pools, place))
        for number, place in enumerate(places)
    }


def keys(pages: StoredPages, *, written: bool) -> list[str]:
    found = pages.items(piece("full", 0, 3, 4, 5), written=written)
    return [key for item in found for key in item.keys]


@pytest.mark.parametrize(("ranks", "stages", "own", "kind"), TOPOLOGIES)
def test_what_any_rank_reads_is_written_by_exactly_one(
    ranks: int, stages: int, own: bool, kind: str
) -> None:
    found = topology(ranks, stages, own, kind).values()
    written = Counter((store, key) for store, one in found for key in keys(one, written=True))
    read = Counter((store, key) for store, one in found for key in keys(one, written=False))
    assert set(read) == set(written), "and nothing is written that nobody reads"
    assert set(written.values()) == {1}
    for store, one in found:
        asked = {key for row in one.keys("full", DIGESTS[:3]) for key in row}
        assert {(store, key) for key in asked} <= set(written), "a look-up asks for nothing else"
    stores = {store for store, _ in found}
    described = Counter(store for store, one in found if one.document)
    assert described == Counter(stores), "each store is described once"


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("own", [False, True])
def test_every_rank_fetches_what_the_ranks_stored(ranks: int, own: bool) -> None:
    """With real bytes: as many stores as there are ranks, or one for all."""
    stores = [Gated() for _ in range(ranks if own else 1)]
    places: list[Any] = [Rank(rank, ranks, own_store=own) for rank in range(ranks)]
    for rank, place in enumerate(places):
        with bench(stores[rank if own else 0], rank=place) as one:
            assert one.store_path(4) == StoreDone(1, 7)
    for rank, place in enumerate(places):
        with bench(stores[rank if own else 0], rank=place) as one:
            assert one.done(Lookup(3, 0, 0, DIGESTS[:4], 0, (0, 2, 1))) == [LookupDone(3, 4)]
            assert one.done(one.fetch_path(4)) == [FetchDone(2, 4)]
            context = context_key(one.pages.context)
            one.idle()
            assert context in one.store.values
