"""What each eviction policy gives up first, by hand; the facts that orders compare."""

from __future__ import annotations

import pytest

from hicache.core.actions import Evicted
from hicache.core.errors import CallerError
from hicache.core.events import Arrived, EvictWanted
from hicache.core.eviction_policies import Fifo
from hicache.core.lru import Queue, next_victim, offer
from hicache.core.node import Node
from hicache.core.tree import truncate
from hicache.core.types import BACKBONE, DEVICE, Key, Tier

from .rig import PAGE, Rig, key

# Three texts of two pages. The first to come is "aa", the last to be used again "aa" too.
TEXTS = ("aa", "bb", "cc")


def served(policy: str) -> Rig:
    """aa, bb and cc come in this order, with priorities 1, 0, 2; then cc twice, bb, aa."""
    rig = Rig(device=(16,), eviction_policy=policy)
    uses = [*zip(TEXTS, (1, 0, 2), strict=True), ("cc", 0), ("cc", 0), ("bb", 0), ("aa", 0)]
    for request, (text, priority) in enumerate(uses):
        rig.feed(_arrived(request, text, priority))
        rig.settle(rig.admit(request))
        rig.finish(request, text)
    return rig


def _arrived(request: int, text: str, priority: int) -> Arrived:
    return Arrived(request, key(text), len(text) * PAGE, len(text) - 1, priority)


def gone(rig: Rig, pages: int) -> str:
    """Which texts lose their pages, a letter per page."""
    names = {
        int(page): chr(node.key[0])
        for node in rig.view.nodes()
        for page in node.pages[Tier.DEVICE][0]  # type: ignore[union-attr]
    }
    outcomes = rig.feed(EvictWanted(Tier.DEVICE, "full", pages))
    return "".join(
        names[int(page)] for one in outcomes if isinstance(one, Evicted) for page in one.pages
    )


@pytest.mark.parametrize(
    ("policy", "order"),
    [
        ("fifo", "aabbcc"),
        ("lru", "ccbbaa"),
        ("lru_path", "ccbbaa"),
        ("lfu", "bbaacc"),
        ("slru", "ccbbaa"),
        ("priority", "bbaacc"),
    ],
)
def test_victims_in_order(policy: str, order: str) -> None:
    rig = served(policy)
    assert "".join(gone(rig, 2) for _ in TEXTS) == order


class Alike(Fifo):
    def rank(self, node: Node, component: int) -> int:
        return 0


def test_of_nodes_alike_the_deepest_goes_first_as_it_is_now() -> None:
    """Not as it was when it was queued."""
    rig = Rig(device=(16,))
    for request, text in enumerate(("abcd", "xyz")):
        rig.arrive(request, text)
        rig.settle(rig.admit(request))
        rig.finish(request, text)
    queue = Queue(BACKBONE, DEVICE, 1)
    nodes = [*rig.view.nodes()]
    for node in nodes:
        node.queued = 0
        offer([[queue]], Alike(), node, DEVICE, BACKBONE)
    [cut] = [node for node in nodes if node.end_page == 4]
    truncate(rig.core._state, cut, DEVICE, 2)
    found = [next_victim([queue], Alike()) for _ in nodes]
    assert [node.end_page for node in found if node is not None] == [3, 2]


def test_a_node_has_the_highest_priority_of_its_requests_and_halves_keep_all_facts() -> None:
    rig = Rig(device=(16,), eviction_policy="priority")
    for request, (text, priority) in enumerate((("ccc", 2), ("ccc", -5))):
        rig.feed(_arrived(request, text, priority))
        rig.settle(rig.admit(request))
        rig.finish(request, text)
    upper, lower = rig.view.nodes()  # the second request's last page is always computed
    assert (upper.end_page, lower.end_page) == (2, 3)
    assert (upper.priority, upper.hits) == (lower.priority, lower.hits) == (2, 2)
    assert upper.inserted == lower.inserted == 1


@pytest.mark.parametrize("priority", [(1 << 31) + 1, -(1 << 31) - 1])
def test_a_priority_beyond_all_bounds_is_refused(priority: int) -> None:
    rig = Rig(device=(16,))
    with pytest.raises(CallerError, match="priority: expected"):
        rig.feed(Arrived(0, Key.from_tokens(range(8), 4), 8, 1, priority))
