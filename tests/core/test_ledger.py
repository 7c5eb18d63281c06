"""The page ledger's own asserts. Where every page is, the shadow state follow in each sequence."""

import numpy as np
import pytest

from hicache.core.errors import CoreBug
from hicache.core.ledger import Pool
from hicache.core.types import PageState, Tier


def test_no_page_is_taken_cached_or_given_back_twice() -> None:
    pool = Pool(Tier.DEVICE, "full", 6)
    pages = pool.take(4, 1)
    assert sorted([*pages.tolist(), *pool.free_pages().tolist()]) == list(range(6))
    with pytest.raises(CoreBug):
        pool.take(3, 2)
    pool.cache(pages, 7)
    with pytest.raises(CoreBug):
        pool.cache(pages, 7)
    pool.give_back(pages)
    with pytest.raises(CoreBug, match="double free"):
        pool.give_back(pages)
    assert pool.free == 6


def test_pages_on_loan_are_free_with_the_last_loan() -> None:
    pool = Pool(Tier.HOST, "full", 6)
    pages = pool.take(2, 1)
    generation = pool.generation.copy()
    for _ in range(2):
        pool.lend(pages)
    pool.give_back(pages)
    assert pool.counts[PageState.RETIRING] == 2
    pool.repay(pages)
    assert pool.free == 4
    assert (pool.generation == generation).all()
    pool.repay(pages)
    assert pool.free == 6
    assert np.flatnonzero(pool.generation - generation).tolist() == sorted(pages.tolist())
    with pytest.raises(CoreBug, match="repaid twice"):
        pool.repay(pages)


def test_pages_of_several_owners_go_back_at_once() -> None:
    pool = Pool(Tier.HOST, "full", 6)
    owned, reserved = pool.take(2, 1), pool.reserve(2, 9)
    pool.cache(owned, 3)
    pool.give_back(np.concatenate((owned, reserved)))
    assert pool.counts == [6, 0, 0, 0, 0]
