"""Each policy's declarations and ranks, against independent tables of the expected values.

Does not test configurations (see contracts) or policies in a core (see the checks).
"""

from __future__ import annotations

from collections.abc import Callable

from hicache import registry
from hicache.core.eviction_policies.base import (
    EvictionPolicy,
    Facts,
    SecondChance,
    asks_for_marks,
    before,
    second_chance_of,
)
from hicache.core.write_policies.base import WritePolicy

from ..contracts import eviction_policies
from ..orders import key_of_facts

Key = Callable[[Facts], tuple[int, ...]]
_TICKS = 1 << 48  # of an age, what is below is a tick
_ORDERS: dict[str, tuple[bool, Key]] = {
    "cost_aware": (
        False,
        lambda one: (one.age // _TICKS + (1 + one.visits) * one.cost, one.last_use),
    ),
    "fifo": (False, lambda one: (one.inserted,)),
    "lfu": (False, lambda one: (one.hits, one.last_use)),
    "lru": (False, lambda one: (one.last_use,)),
    "lru_path": (True, lambda one: (one.last_use, one.depth)),
    "priority": (False, lambda one: (one.priority, one.last_use)),
    "sieve": (False, lambda one: (_lap(one), one.inserted)),
    "slru": (False, lambda one: (int(one.hits > 1), one.last_use)),
}
_QUEUES = {"s3_fifo": SecondChance(10, 2, 3, 90)}  # two queues instead of an order
_WRITES = {
    "write_back": (0, True, False),
    "write_through": (1, False, True),
    "write_through_selective": (2, False, True),
}
_FACTS = [
    Facts(last_use, inserted, hits, priority, depth=depth)
    for last_use in (0, 3, 1 << 40)
    for inserted in (0, 9)
    for hits in (1, 2, 3)
    for priority in (-1, 0, 4)
    for depth in (0, 5)
]
_MARKED = [
    Facts(last_use, inserted, 2, 0, visits, age, cost, earlier)
    for last_use in (3, 1 << 40)
    for inserted, earlier in ((4, 0), (9, 7))
    for visits in (0, 1, 4)
    for age in (0, 7, _TICKS + 8, 2 * _TICKS)
    for cost in (1, 900)
]


def _lap(one: Facts) -> int:
    """The lap of the hand of SIEVE in which the copy goes."""
    lap, hand = divmod(one.age, _TICKS)
    if one.visits:
        return lap + (1 if one.inserted > hand else 2)
    return lap + (1 if one.age and hand >= one.earlier else 0)


def policies() -> bool:
    """Each policy has the expected declarations, and ranks as it declares."""
    for name, (whole_path, key) in _ORDERS.items():
        order: EvictionPolicy = registry.load(registry.EVICTION_POLICIES, name).policy()
        declared = key_of_facts(order)
        if (order.name, order.whole_path) != (name, whole_path) or declared is None:
            return False
        facts = [*_FACTS, *_MARKED] if asks_for_marks(order) else _FACTS
        alike = all(
            (key(one) < key(other)) == (declared(one) < declared(other))
            for one in facts
            for other in facts
        )
        if not alike or eviction_policies.wrong(order):
            return False
    for name, queues in _QUEUES.items():
        two: EvictionPolicy = registry.load(registry.EVICTION_POLICIES, name).policy()
        if (two.name, two.whole_path, second_chance_of(two)) != (name, False, queues):
            return False
    for name, told in _WRITES.items():
        write: WritePolicy = registry.load(registry.WRITE_POLICIES, name).policy()
        if (write.name, write.threshold, write.on_evict, write.contiguous) != (name, *told):
            return False
    return before(-1, 5) < before(0, 0) < before(0, 1 << 47) < before(1, 0)
