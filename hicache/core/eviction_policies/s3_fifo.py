"""S3-FIFO: a small queue for what is new, a main queue for what was used again, and a ghost queue.

Source: Yang et al., FIFO queues are all you need for cache eviction, SOSP 2023. The small queue has
a tenth of the pool. What is used twice while it is there goes to the main queue, and so does what
comes back while the ghost remembers it; the rest goes. The main queue gives a copy up to three more
rounds. Here, a visit is a request that uses a node that another one inserted, sizes are counted in
pages, the queue is chosen anew after each copy that is spared, and only leaves can go.
"""

from __future__ import annotations

from ..radix.node import Node
from .base import SecondChance


class S3Fifo:
    name = "s3_fifo"
    whole_path = False
    order = ()
    second_chance = SecondChance(
        small_percent=10, visits_to_main=2, most_chances=3, ghost_percent=90
    )

    def rank(self, node: Node, component: int) -> int:
        return node.marks.place[component]


def policy() -> S3Fifo:
    return S3Fifo()
