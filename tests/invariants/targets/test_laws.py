"""The laws for other engines: each is broken by a state that it alone forbids, and holds else."""

from typing import Any

import numpy as np
import pytest

from invariants.fuzz.laws import LAWS, Part, complete, judge, longest
from invariants.fuzz.target import Broken, Holding, PoolState, chain


def used(owner: str, *slots: int, expected: list[int] | None = None) -> Holding:
    known = None if expected is None else np.array(expected, np.int64)
    return Holding(owner, np.array(slots, np.int64), known)


def pool(*holdings: Holding, **message: Any) -> PoolState:
    value = {"name": "device", "page": 2, "slots": 8, "free": 4 - len(holdings)} | message
    return PoolState(holdings=holdings, **value)


CACHE, MINE = used("cache", 0, 1), used("request 3", 2, 3)


def test_a_sound_pool_breaks_no_law() -> None:
    contents = np.array([7, 8, 9, 9, 0, 0, 0, 0])
    cached = used("cache", 0, 1, expected=[7, 8])
    judge([pool(cached, MINE, contents=contents, counted=2, protected=0)], idle=True)
    judge([pool(CACHE, MINE, protected=2)], idle=False)
    judge([pool(CACHE, used("request 1", 0, 1), shares=True, free=3)], idle=False)
    complete([pool()])


@pytest.mark.parametrize(
    ("law", "state", "text"),
    [
        ("OWN", pool(CACHE, used("request 3", 1)), "page 0: held by cache and by request 3"),
        ("POOL-SUM", pool(CACHE, free=2), "2 pages free and 1 held of 4"),
        ("POOL-SUM", pool(CACHE, free=4), "4 pages free and 1 held of 4"),
        ("SIZES", pool(CACHE, MINE, counted=4), "counts 4 cached slots, there are 2"),
        ("LOCK-BAL", pool(CACHE, protected=2), "2 slots are locked"),
        (
            "BYTES",
            pool(used("cache", 4, 5, expected=[1, 2]), contents=np.array([0, 0, 0, 0, 1, 3, 0, 0])),
            "slot 5, position 1 of cache: holds another prefix",
        ),
        (
            "BYTES",
            pool(used("cache", 4, expected=[1]), contents=np.full(8, -1)),
            "holds what nobody wrote",
        ),
    ],
)
def test_a_broken_pool(law: str, state: PoolState, text: str) -> None:
    with pytest.raises(Broken, match=law) as caught:
        judge([state], idle=True)
    assert caught.value.law == law
    assert text in caught.value.text
    assert law in LAWS


def test_what_never_comes_back() -> None:
    with pytest.raises(Broken, match="1 pages never come back; held by cache 2 slots"):
        complete([pool(CACHE)])


def brute(parts: list[Part], page: int, most: int) -> int:
    """The longest prefix, position by position."""
    best = 0
    for end in range(page, most + 1, page):
        fine = True
        for there, needs in parts:
            fine &= all(there[at] for at in range(end) if end - at <= needs)
        best = end if fine else best
    return best


def test_the_longest_prefix_that_every_component_restores() -> None:
    random = np.random.default_rng(4)
    reached = set()
    for _ in range(400):
        page, size = int(random.integers(1, 4)), int(random.integers(1, 14))
        parts = [Part(random.random(size) < 0.9, size)]
        parts += [Part(random.random(size) < 0.6, int(random.integers(1, 5)))]
        parts += [Part(random.random(size) < 0.5, 1)] * int(random.integers(0, 2))
        result = longest(parts, page, size)
        assert result == brute(parts, page, size)
        reached.add(result > 0)
    assert reached == {True, False}


def test_a_content_is_that_of_a_whole_prefix_in_its_namespace() -> None:
    item, other = chain([1, 2, 3]), chain([2, 2, 3])
    assert (item == chain([1, 2, 3, 4])[:3]).all()
    assert not set(item.tolist()) & {*other.tolist(), *chain([1, 2, 3], "a").tolist()}
    assert (item > 0).all()
