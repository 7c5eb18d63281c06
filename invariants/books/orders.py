"""The order in which copies are to go, from the books' own facts and what the policy declares.

Lives here: the key that two nodes are compared by. Must not live here: a policy's `rank`, which is
what the key is there to judge, or the name of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hicache.core.eviction_policies.base import EvictionPolicy, Facts, Term

from .shadow import Key, Shadow

KeyOf = Callable[[Shadow, int], Key]
RECENCY = (Term("last_use"),)
# Whoever uses a node uses all above it, so a node has no less of these than one below it.
_NO_LESS_ABOVE = {"last_use", "hits", "priority"}


class Order(NamedTuple):
    """key: what is compared of a node's copy of a component, the lowest goes first; None where the
    policy says nothing of its order: then no order is judged. leaves_first: a node of the backbone
    never comes before what is below it."""

    key: KeyOf | None
    leaves_first: bool


def order_of(policy: EvictionPolicy) -> Order:
    """What a policy declares of its order."""
    reference: Callable[[Facts], Sequence[int]] | None = getattr(policy, "reference", None)
    if reference is not None:
        return Order(lambda shadow, index: tuple(reference(facts_of(shadow, index))), False)
    order: tuple[Term, ...] = getattr(policy, "order", ())
    terms = tuple((Facts._fields.index(term.fact), term.most) for term in order)
    leaves_first = all(term.fact in _NO_LESS_ABOVE for term in order)
    if not terms:
        return Order(None, False)
    if order == RECENCY:
        return Order(lambda shadow, index: (shadow.use[index],), True)

    def key(shadow: Shadow, index: int) -> Key:
        facts = facts_of(shadow, index)
        return tuple([min(facts[at], most) for at, most in terms])

    return Order(key, leaves_first)


def facts_of(shadow: Shadow, index: int) -> Facts:
    return Facts(shadow.use[index], shadow.inserted, shadow.hits, shadow.priority)
