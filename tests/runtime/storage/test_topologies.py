"""Small topologies, all of them: what any rank reads is written by exactly one rank."""

from __future__ import annotations

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
