"""The order in which copies are to go, from the books' own facts and what the policy declares.

Lives here: the key that two nodes are compared by. Must not live here: a policy's `rank`, which is
what the key is there to judge, or the name of a policy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from hicache.core.eviction_policies.base import EvictionPolicy, Facts, Term

from .mirror import Key, NodeMirror

KeyOf = Callable[[NodeMirror, int], Key]
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
    order: tuple[Term, ...] = getattr(policy, "order", ())
    key = key_of_facts(policy)
    own = hasattr(policy, "reference")
    if key is None:
        return Order(None, False)
    if order == RECENCY and not own:
        return Order(lambda mirror, index: (mirror.use[index],), True)
    known = not own and all(term.fact in _NO_LESS_ABOVE for term in order)
    return Order(lambda mirror, index: key(facts_of(mirror, index)), known)


def key_of_facts(policy: EvictionPolicy) -> Callable[[Facts], Key] | None:
    """What the policy's order compares; None where the policy says nothing of it."""
    reference: Callable[[Facts], Sequence[int]] | None = getattr(policy, "reference", None)
    if reference is not None:
        return lambda facts: tuple(reference(facts))
    order: tuple[Term, ...] = getattr(policy, "order", ())
    terms = tuple((Facts._fields.index(term.fact), term.most) for term in order)
    if not terms:
        return None
    return lambda facts: tuple([min(facts[at], most) for at, most in terms])


def facts_of(mirror: NodeMirror, index: int) -> Facts:
    return Facts(mirror.use[index], mirror.inserted, mirror.hits, mirror.priority)
