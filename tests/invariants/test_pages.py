"""The book of a pool's pages: many claims in one step are the same as one after the other."""

from __future__ import annotations

import random

import numpy as np
import pytest

from hicache.core.config import Config
from hicache.core.types import Pages, Tier
from invariants.books.kinds import kinds_of
from invariants.books.pages import NODE, REQUEST, PageBook, all_are, code_of, same

CAPACITY = 40
WRONG: dict[str, list[int]] = {
    "nothing": [],
    "a page that somebody has": [36],
    "a page twice": [0, 0],
    "no page of the pool": [CAPACITY],
    "below 0": [-1],
}


def book() -> PageBook:
    made = PageBook(Tier.DEVICE, kinds_of(Config(1, (CAPACITY,), (0,)))[0], CAPACITY)
    made.claim(np.array([35, 36, 37]), code_of(REQUEST, 7))
    return made


def drawn(seed: int, wrong: str) -> list[tuple[Pages, int]]:
    """Claims of a few nodes on free pages, one of which has something wrong."""
    draws = random.Random(seed)
    pages = draws.sample(range(1, 35), 30)
    claims: list[tuple[Pages, int]] = []
    while pages:
        count = draws.randrange(6)
        claims.append((np.array(pages[:count], dtype=np.int64), code_of(NODE, len(claims) + 1)))
        pages = pages[count:]
    claims.insert(draws.randrange(len(claims)), (np.array(WRONG[wrong], dtype=np.int64), 4001))
    return claims


def told(pages: PageBook) -> list[tuple[list[int], int]]:
    return [(some.tolist(), code) for some, code in pages.claimed]


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("seed", range(10))
def test_many_claims_at_once_equal_claims_one_by_one(seed: int, wrong: str) -> None:
    claims = drawn(seed, wrong)
    one, other = book(), book()
    for pages, code in claims:
        one.claim(pages, code)
    other.claim_all(claims)
    assert one.clashes == other.clashes
    assert bool(one.clashes) == (wrong != "nothing")
    assert one.owner.tolist() == other.owner.tolist()
    assert one.held == other.held
    assert told(one) == told(other)


def test_no_claims_at_all_change_nothing() -> None:
    made = book()
    made.claim_all([])
    assert made.held == book().held


def test_arrays_are_compared_by_content() -> None:
    some = np.arange(5)
    assert same(some, some.copy())
    assert same(some[::2], np.array([0, 2, 4]))
    assert not same(some, some[:4])
    assert not same(some, some[::-1])
    for kind in (np.int64, np.int32, np.uint8):
        assert all_are(np.full(3, 2, dtype=kind), 2)
        assert all_are(np.empty(0, dtype=kind), 2)
        assert not all_are(np.array([2, 2, 3], dtype=kind), 2)
