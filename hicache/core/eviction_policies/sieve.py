"""SIEVE: first in, first out, but a copy that was visited survives the next pass of the hand.

Source: Zhang et al., SIEVE is Simpler than LRU, NSDI 2024. There, a hand moves along a queue from
the oldest object to the newest and begins again; it clears the mark of a visited object and evicts
one without a mark. So an object goes in the first lap in which the hand finds it without a mark:

    never visited   the lap in which it came, since new objects stand before the hand; the next one
                    if the hand had evicted the newest object, and so begins again
    visited         the lap after the one in which the hand reaches it next

Within a lap, objects go in the order in which they were inserted. The hand is where the last victim
was (`age`: its lap and its tick of insertion). On traffic without shared prefixes, this evicts what
the algorithm evicts. In a tree, a node with children on its tier and a node in use wait until they
can go, and then go next, since the hand has passed them.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import TICK_BITS, Facts, before


class Sieve:
    name = "sieve"
    whole_path = False
    order = ()
    marks = True

    def rank(self, node: Node, component: int) -> int:
        marks = node.marks
        age = marks.age[component]
        lap = _lap(marks.visits[component], age, node.inserted, marks.earlier)
        return before(lap, node.inserted)

    def reference(self, facts: Facts) -> tuple[int, ...]:
        lap = _lap(facts.visits, facts.age, facts.inserted, facts.earlier)
        return lap, facts.inserted


def _lap(visits: int, age: int, inserted: int, earlier: int) -> int:
    """The lap in which the hand evicts the copy."""
    lap, hand = age >> TICK_BITS, age & (1 << TICK_BITS) - 1
    if not visits:
        return lap + 1 if age and hand >= earlier else lap
    return lap + 1 if inserted > hand else lap + 2


def policy() -> Sieve:
    return Sieve()
