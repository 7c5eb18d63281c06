"""Small topologies, all of them: what any rank reads is written by exactly one rank."""

from collections import Counter
from itertools import product
from types import SimpleNamespace
from typing import cast

import pytest

from hicache.runtime.storage import PagePool, Rank, StoredPages

from .rig import DIGESTS, context_of, hybrid, piece

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
    items = pages.items(piece("full", 0, 3, 4, 5), written=written)
    return [key for item in items for key in item.keys]


@pytest.mark.parametrize(("ranks", "stages", "own", "kind"), TOPOLOGIES)
def test_what_any_rank_reads_is_written_by_exactly_one(
    ranks: int, stages: int, own: bool, kind: str
) -> None:
    values = topology(ranks, stages, own, kind).values()
    written = Counter((store, key) for store, item in values for key in keys(item, written=True))
    read = Counter((store, key) for store, item in values for key in keys(item, written=False))
    assert set(read) == set(written), "and nothing is written that nobody reads"
    assert set(written.values()) == {1}
    for store, value in values:
        texts = {key for row in value.keys("full", DIGESTS[:3]) for key in row}
        assert {(store, key) for key in texts} <= set(written), "a look-up asks for nothing else"
    stores = {store for store, _ in values}
    described = Counter(store for store, item in values if item.document)
    assert described == Counter(stores), "each store is described once"
