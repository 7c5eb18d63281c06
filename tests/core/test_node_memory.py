"""What a node of the tree takes, and what nodes share."""

from __future__ import annotations

import tracemalloc

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import AdmitWanted, Arrived, Finished, PrefillDone
from hicache.core.types import Key

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
