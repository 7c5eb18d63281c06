"""The order of eviction, computed from the books' facts and the declared order of the policy.

Lives here: the key by which two nodes are compared. Does not use a policy's `rank`, which is
checked against this key, or the name of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hicache.core.eviction_policies.base import (
    TICK_BITS,
    EvictionPolicy,
    Facts,
    Term,
    asks_for_marks,
)

from .mirror import Key, NodeMirror

KeyOf = Callable[[NodeMirror, int], Key]
RECENCY = (Term("last_use"),)
# A use of a node is a use of all nodes above it, so these facts never increase downwards.
# In the backbone, all depths are 0.
_NO_LESS_ABOVE = {"last_use", "hits", "priority", "depth"}


class Queue(NamedTuple):
    """One eviction queue of the core, either its garbage or the rest: the rank and the node of each
    entry.
    """

    ranks: list[int]
    members: list[int]


class Order(NamedTuple):
    """key: returns the key of a node's copy of a component; the lowest key is evicted first. None
    if the policy declares no order; then no order is checked. leaves_first: in the backbone, a node
    never comes before the nodes below it. marked: whether the policy compares ages or visits.
    """

    key: KeyOf | None
    leaves_first: bool
    marked: bool = False


def order_of(policy: EvictionPolicy) -> Order:
    """Returns the declared order of a policy."""
    order: tuple[Term, ...] = getattr(policy, "order", ())
    key = key_of_facts(policy)
    own = hasattr(policy, "reference")
    if key is None:
        return Order(None, False)
    if order == RECENCY and not own:
        return Order(lambda mirror, index: (mirror.use[index],), True)
    known = not own and all(term.fact in _NO_LESS_ABOVE for term in order)
    return Order(lambda mirror, index: key(facts_of(mirror, index)), known, asks_for_marks(policy))


def is_recency(policy: EvictionPolicy) -> bool:
    """Whether the policy orders the copies of the backbone by their last use alone."""
    order: tuple[Term, ...] = getattr(policy, "order", ())
    told = tuple(term for term in order if term.fact != "depth")
    return told == RECENCY and not hasattr(policy, "reference")


def key_of_facts(policy: EvictionPolicy) -> Callable[[Facts], Key] | None:
    """Returns the key of the policy's order, or None if it declares no order."""
    reference: Callable[[Facts], Sequence[int]] | None = getattr(policy, "reference", None)
    if reference is not None:
        return lambda facts: tuple(reference(facts))
    order: tuple[Term, ...] = getattr(policy, "order", ())
    terms = tuple((Facts._fields.index(term.fact), term.most) for term in order)
    if not terms:
        return None
    return lambda facts: tuple([min(facts[at], most) for at, most in terms])


def facts_of(mirror: NodeMirror, index: int) -> Facts:
    return Facts(
        mirror.use[index],
        mirror.inserted,
        mirror.hits,
        mirror.priority,
        mirror.visits[index],
        mirror.age[index],
        mirror.cost[index],
        mirror.earlier,
        mirror.end_page - mirror.span if index else 0,
    )


def number_of(key: Key) -> int:
    """The rank that a key stands for, as ages count it: the last value is a tick."""
    number = 0
    for value in key:
        number = (number << TICK_BITS) + value
    return number
