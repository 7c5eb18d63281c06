"""What a node of the tree takes, and what nodes share."""

from __future__ import annotations

import tracemalloc

import pytest

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CoreBug
from hicache.core.events import AdmitWanted, Arrived, Finished, PrefillDone
from hicache.core.radix.node import NOTHING, Node
from hicache.core.types import Key, Tier

_LEAVES = 2000
_MOST_BYTES = 1100  # a node took 2,039 when each had tables of its own


def _add(core: Core, leaf: int) -> None:
    key = Key.from_page_ids([-1 - leaf // 64, leaf])
    core.handle(Arrived(leaf, key, 32, 2))
    prefill = core.handle(AdmitWanted(leaf, 1 << 40))[-1]
    core.handle(PrefillDone(prefill.flight))  # type: ignore[union-attr]
    core.handle(Finished(leaf, key, 32))


def test_a_node_takes_little_memory() -> None:
    core = Core(Config(page_size=16, device_pages=(3 * _LEAVES,)))
    tracemalloc.start()
    try:
        for leaf in range(_LEAVES):
            _add(core, leaf)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    nodes = sum(1 for _ in core.view.nodes())
    assert nodes == _LEAVES + -(-_LEAVES // 64)
    assert taken / nodes < _MOST_BYTES


def test_a_leaf_without_locks_has_nothing_of_its_own() -> None:
    core = Core(Config(page_size=16, device_pages=(20,)))
    for leaf in range(3):
        _add(core, leaf)
    leaves = [node for node in core.view.nodes() if not node.children]
    assert len(leaves) == 3
    for node in leaves:
        assert node.children is NOTHING
        assert node.legs == ()
        assert all(holders is NOTHING for row in node.locks for holders in row)
        assert node.pages[Tier.HOST] is Node(0, None, b"", b"", 0, 1).pages[Tier.HOST]


def test_what_nodes_share_refuses_to_be_filled() -> None:
    with pytest.raises(CoreBug, match="dictionary that nodes share"):
        Node(0, None, b"", b"", 0, 1).children[b"x"] = Node(1, None, b"", b"", 0, 1)
    assert not NOTHING
