"""SIEVE, S3-FIFO and GDSF against the published algorithms, on traffic without shared prefixes.

There, every page is a node of its own below the root, so the tree must evict what the flat
algorithms evict. They are written here as they were published.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from random import Random

import pytest

from hicache.core.actions import Admitted
from hicache.core.radix import lru

from .rig import Rig

CAPACITY = 20
REQUESTS = 600


def sieve(requests: list[str]) -> list[bool]:
    queue: list[str] = []  # the newest first
    visited: dict[str, bool] = {}
    hand, hits = -1, []
    for one in requests:
        hits.append(one in visited)
        if one in visited:
            visited[one] = True
            continue
        if len(queue) == CAPACITY:
            at = hand if hand >= 0 else len(queue) - 1
            while visited[queue[at]]:
                visited[queue[at]] = False
                at = at - 1 if at else len(queue) - 1
            del visited[queue.pop(at)]
            hand = at - 1
        queue.insert(0, one)
        hand += hand >= 0
        visited[one] = False
    return hits


def s3_fifo(requests: list[str]) -> list[bool]:
    small: OrderedDict[str, int] = OrderedDict()
    main: OrderedDict[str, int] = OrderedDict()
    ghost: OrderedDict[str, None] = OrderedDict()
    hits = []
    for one in requests:
        queue = small if one in small else main
        hits.append(one in queue)
        if one in queue:
            queue[one] = min(3, queue[one] + 1)
            continue
        while len(small) + len(main) >= CAPACITY:
            if len(small) * 10 >= CAPACITY:
                first, visits = small.popitem(last=False)
                if visits > 1:
                    main[first] = 0
                else:
                    ghost[first] = None
                    if len(ghost) > CAPACITY * 9 // 10:
                        ghost.popitem(last=False)
            else:
                first, visits = main.popitem(last=False)
                if visits:
                    main[first] = visits - 1
        if one in ghost:
            del ghost[one]
            main[one] = 0
        else:
            small[one] = 0
    return hits


def gdsf(requests: list[str]) -> list[bool]:
    """All pages have one size and one cost; of equal values, the least recently used goes."""
    value: dict[str, tuple[int, int]] = {}
    uses: dict[str, int] = {}
    age, hits = 0, []
    for time, one in enumerate(requests):
        hits.append(one in value)
        if one not in value and len(value) == CAPACITY:
            gone = min(value, key=lambda page: value[page])
            age, _ = value.pop(gone)
            del uses[gone]
        uses[one] = uses.get(one, 0) + 1
        value[one] = (age + uses[one], time)
    return hits


def drawn(seed: int) -> list[str]:
    """Popular pages, pages that come once, and a part that moves on."""
    draws = Random(seed)
    found = []
    for turn in range(REQUESTS):
        kind = draws.random()
        if kind < 0.4:
            found.append(chr(1000 + int(draws.paretovariate(0.8)) % 40))
        elif kind < 0.7:
            found.append(chr(2000 + turn // 30 + draws.randrange(12)))
        else:
            found.append(chr(5000 + turn))
    return found


@pytest.mark.parametrize("flat", [sieve, s3_fifo, gdsf])
@pytest.mark.parametrize("seed", range(4))
def test_without_shared_prefixes_the_tree_hits_what_the_flat_algorithm_hits(
    flat: Callable[[list[str]], list[bool]], seed: int
) -> None:
    name = "cost_aware" if flat is gdsf else flat.__name__
    cost = {"recompute_token_cost": 1, "recompute_position_cost": 0} if flat is gdsf else {}
    requests = drawn(seed)
    hits = hits_of(name, requests, **cost)
    assert hits == flat(requests)
    assert sum(hits) > REQUESTS // 10


@pytest.mark.parametrize("flat", [sieve, s3_fifo])
def test_a_sweep_of_the_queues_loses_no_candidate(
    flat: Callable[[list[str]], list[bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues are swept as soon as they have grown by a few entries, the main queue too."""
    monkeypatch.setattr(lru, "LEAST_SWEPT", 1)
    requests = drawn(5)
    assert hits_of(flat.__name__, requests) == flat(requests)


def hits_of(policy: str, requests: list[str], **cost: int) -> list[bool]:
    """Which requests of a page each hit, one after the other."""
    # a page that hits is used in place, so the pool needs no page beside those of the cache
    rig = Rig(device=CAPACITY, eviction_policy=policy, **cost)
    hits = []
    for number, text in enumerate(requests):
        rig.arrive(number, text)
        outcomes = rig.admit(number)
        hits.append(bool(rig.one(Admitted, outcomes).device_pages))
        rig.settle(outcomes)
        rig.finish(number, text)
    return hits
