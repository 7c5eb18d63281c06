"""A tree that grows: bytes a node, and what an operation costs at each size.

    python -m tests.bench.growing_tree 100000 10000000

Leaves of 4 pages below prefixes of 2 pages, 64 leaves each, in a device pool that holds them all;
keys are block ids, as a hash of tokens would be. Prints one line for each size. Bytes are resident
memory less that of the page ledger, which is allocated beforehand. Times are processor time.
"""

from __future__ import annotations

import gc
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time_ns
from typing import Any, NamedTuple

import numpy as np

from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    EvictWanted,
    Finished,
    MatchWanted,
    PrefillDone,
)
from hicache.core.types import Key, Tier

_PREFIX, _LEAF, _LEAVES, _PAGE = 2, 4, 64, 16
_LENGTH = (_PREFIX + _LEAF) * _PAGE
_WHOLE = 1 << 40
_TRIES = 2000


class Size(NamedTuple):
    """What a tree of so many nodes costs: bytes a node, and microseconds an operation."""

    nodes: int
    node_bytes: float
    life_us: float
    match_us: float
    admit_us: float
    abort_us: float
    evict_us: float

    def __str__(self) -> str:
        return (
            f"{self.nodes:>10,} nodes: {self.node_bytes:,.0f} bytes a node, {self.life_us:.1f} us "
            f"a request that adds one, match {self.match_us:.1f}, admit {self.admit_us:.1f}, abort "
            f"{self.abort_us:.1f}, evict {self.evict_us:.1f} us"
        )


class GrowingTree:
    """See the module. most: the nodes that there will be."""

    def __init__(self, most: int) -> None:
        self._core = Core(Config(page_size=_PAGE, device_pages=(most * (_LEAF + 1) + 64,)))
        for pool in self._core.view.pools(Tier.DEVICE):
            for column in (pool.state, pool.owner, pool.loans, pool.generation):
                column.fill(column[0])  # resident before the first node
        self._leaves = 0
        self._nodes = 0
        self._requests = 1 << 40
        gc.freeze()
        gc.disable()  # as a replay does: a collection would scan the whole tree
        self._before = _resident()

    def grow(self, nodes: int) -> float:
        """Adds leaves up to about so many nodes. Returns the microseconds of one of the last
        tenth."""
        begun = process_time_ns()
        last, timed = nodes - (nodes - self._nodes) // 10, 0
        while self._nodes < nodes:
            if self._nodes >= last and not timed:
                begun, timed = process_time_ns(), self._leaves
            self._add()
        return (process_time_ns() - begun) / 1e3 / (self._leaves - timed)

    def measured(self, life_us: float) -> Size:
        node_bytes = (_resident() - self._before) / self._nodes
        some = np.random.default_rng(1).integers(0, self._leaves, _TRIES).tolist()
        handle = self._core.handle
        numbers = range(self._requests, self._requests + _TRIES)
        for number, leaf in zip(numbers, some, strict=True):
            handle(Arrived(number, _key(leaf), _LENGTH, _PREFIX + _LEAF))
        match = _median_us(lambda number: handle(MatchWanted(number)), numbers)
        flights: list[Any] = []
        admit = _median_us(
            lambda number: flights.append(handle(AdmitWanted(number, _WHOLE))[-1]), numbers
        )
        for prefill in flights:
            handle(PrefillDone(prefill.flight))
        abort = _median_us(lambda number: handle(Aborted(number)), numbers)
        wanted = EvictWanted(Tier.DEVICE, "full", 1)
        evict = _median_us(lambda _: handle(wanted), range(200))
        self._requests += _TRIES
        return Size(self._nodes, node_bytes, life_us, match, admit, abort, evict)

    def _add(self) -> None:
        """One request that adds a leaf."""
        request, handle = self._leaves, self._core.handle
        key = _key(request)
        handle(Arrived(request, key, _LENGTH, key.pages))
        prefill: Any = handle(AdmitWanted(request, _WHOLE))[-1]
        handle(PrefillDone(prefill.flight))
        handle(Finished(request, key, _LENGTH))
        if request % _LEAVES == 1:
            self._nodes += 1  # the second leaf of a prefix splits the first
        self._nodes += 1
        self._leaves += 1


def _key(leaf: int) -> Key:
    prefix = -1 - _PREFIX * (leaf // _LEAVES)
    ids = [prefix, prefix - 1, *range(leaf * _LEAF, leaf * _LEAF + _LEAF)]
    return Key.from_page_ids(ids)


def _median_us(call: Callable[[int], object], numbers: range) -> float:
    spent = []
    for number in numbers:
        start = process_time_ns()
        call(number)
        spent.append(process_time_ns() - start)
    return statistics.median(spent) / 1e3


def _resident() -> int:
    """Bytes of memory of this process."""
    fields = Path("/proc/self/status").read_text()
    return int(fields.partition("VmRSS:")[2].split()[0]) * 1024


def main(sizes: list[int]) -> None:
    tree = GrowingTree(max(sizes))
    for nodes in sorted(sizes):
        print(tree.measured(tree.grow(nodes)), flush=True)


if __name__ == "__main__":
    main([int(word) for word in sys.argv[1:]])
