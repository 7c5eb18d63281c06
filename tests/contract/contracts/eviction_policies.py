"""The contract of an eviction policy, tested on small made-up facts."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

from hicache.core.eviction_policies.base import (
    TICK_BITS,
    EvictionPolicy,
    Facts,
    Term,
    asks_for_marks,
    second_chance_of,
)
from hicache.core.radix.node import Marks, Node
from invariants.orders import key_of_facts

_LAST_USES, _TICKS, _HITS, _PRIORITIES = (
    (0, 1, 2, 40, 1 << 20),
    (0, 1, 30),
    (1, 2, 3, 9),
    (-2, 0, 7),
)
_DEPTHS = (0, 1, 30, 1 << 20)
_FACTS = [Facts(*one) for one in product(_LAST_USES, _TICKS, _HITS, _PRIORITIES)]
_WITH_DEPTHS = [Facts(use, 1, 2, 0, depth=depth) for use, depth in product(_LAST_USES, _DEPTHS)]
_VISITS, _AGES, _COSTS = (0, 1, 4), (0, 1, 1 << TICK_BITS, (1 << TICK_BITS) + 30), (1, 900)
_WITH_MARKS = [
    Facts(2, inserted, 2, 0, *marks) for inserted, *marks in product(_TICKS, _VISITS, _AGES, _COSTS)
]


def wrong(policy: EvictionPolicy) -> str:
    """Returns the error of a policy as "expected ..., found ...", or "" if there is none."""
    return _properties(policy) or _ranks(policy, 0) or _ranks(policy, 1)


def _properties(policy: EvictionPolicy) -> str:
    name, whole = getattr(policy, "name", None), getattr(policy, "whole_path", None)
    if not isinstance(name, str) or not name.isidentifier() or name != name.lower():
        return f"expected name, a word in lower case, found {name!r}"
    if not isinstance(whole, bool):
        return f"expected whole_path, True or False, found {whole!r}"
    if not callable(getattr(policy, "rank", None)):
        return "expected a method rank(node, component), found none"
    order: Any = getattr(policy, "order", ())
    if not isinstance(order, tuple) or not all(isinstance(one, Term) for one in order):
        return f"expected order, a tuple of Term, found {order!r}"
    strange = [term.fact for term in order if term.fact not in Facts._fields]
    if strange:
        return f"expected facts of {', '.join(Facts._fields)} in order, found {strange[0]!r}"
    return ""


def _ranks(policy: EvictionPolicy, component: int) -> str:
    """component: 0, full attention, whose depth is 0; or 1, a window or a state."""
    if second_chance_of(policy) is not None:
        return ""  # the core gives each copy its place
    known = [*_FACTS, *(_WITH_MARKS if asks_for_marks(policy) else ())]
    known += _WITH_DEPTHS if component else ()
    ranks = {facts: policy.rank(_node(facts), component) for facts in known}
    for facts, rank in ranks.items():
        if type(rank) is not int:
            return f"expected rank to return an integer, found {rank!r}"
        if policy.rank(_node(facts), component) != rank:
            return f"expected the same rank for the same node twice, found {rank} once"
        for later in _later(facts):
            if later in ranks and ranks[later] < rank:
                return (
                    f"expected a rank that only grows, found {rank} with {_said(facts)}, then "
                    f"{ranks[later]} with {_said(later)}"
                )
    return _in_order(policy, ranks)


def _in_order(policy: EvictionPolicy, ranks: dict[Facts, int]) -> str:
    """Checks that a lower key has a lower rank."""
    key_of = key_of_facts(policy)
    if key_of is None:
        return ""
    keys = {facts: key_of(facts) for facts in ranks}
    told = sorted(ranks, key=lambda facts: (keys[facts], ranks[facts]))
    highest = told[0]  # highest rank among lower keys
    for one, other in pairwise(told):
        highest = max(highest, one, key=lambda facts: ranks[facts])
        if keys[one] < keys[other] and ranks[other] <= ranks[highest]:
            return (
                f"expected ranks in the declared order, found {_said(highest)} at rank "
                f"{ranks[highest]}, which comes before {_said(other)} at rank {ranks[other]}"
            )
    return ""


def _later(facts: Facts) -> list[Facts]:
    """The same facts with one of them increased, for each fact that can grow."""
    grown = []
    for name, values in (
        ("last_use", _LAST_USES),
        ("hits", _HITS),
        ("priority", _PRIORITIES),
        ("visits", _VISITS),
        ("age", _AGES if facts.visits else ()),
        ("depth", _DEPTHS),
    ):
        more = [value for value in values if value > getattr(facts, name)]
        grown += [facts._replace(**{name: value}) for value in more[:1]]
    return grown


def _node(facts: Facts) -> Node:
    above = Node(1, None, b"", b"", facts.depth, 2)
    node = Node(2, above, b"", b"", facts.depth + 1, 2)
    node.last_use = [facts.last_use] * 2
    node.inserted, node.hits, node.priority = facts.inserted, facts.hits, facts.priority
    node.marks = Marks(2)
    node.marks.visits, node.marks.age = [facts.visits] * 2, [facts.age] * 2
    node.marks.cost, node.marks.earlier = [facts.cost] * 2, facts.earlier
    return node


def _said(facts: Facts) -> str:
    return ", ".join(f"{name} {value}" for name, value in facts._asdict().items())
