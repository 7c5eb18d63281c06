"""This project's own connector under vLLM's scheduler, with one rank or several, and its laws.

Real are `HicacheConnector` with both its sides, the core, the copies of the CPU device, the keys
of a store, and vLLM's aggregation of ranks. Stand-ins are the clock and the store: a copy, or an
action of the store, ends when it is told to. It copies tensors that have the contents of `Memory`,
and the store keeps its values in memory. Scripts copy definitions from here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

from hicache.core import actions
from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.runtime.driver import REPLY_TO
from hicache.runtime.ranks import looked_up
from hicache.runtime.storage import Rank, StoredPages
from hicache.vllm.describing import context_of
from hicache.vllm.groups import STATE, groups_of
from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_engine import Settings
from invariants.fuzz.targets._vllm_worker import BROKEN, MOVING, Content, Memory, torn

CONNECTOR = "hicache.vllm.connector"  # imported where it is played: it needs vLLM 0.32
WAIT = 20  # looks at the clock for which a request waits for the store
REPLIES = REPLY_TO | {actions.Lookup: looked_up}
# Weights that nobody changes.
UNCHANGED = SimpleNamespace(stamp=0, changed=False, look=lambda: 0, has=lambda adapters: True)
LAYER = 1 << 40  # by so much the words of a layer differ from those of the one before


def ours(cache: Any, pages: int, ranks: int, store: bool) -> dict[str, Any]:
    """The settings of the connector, which vLLM then knows by its name. pages: of host memory, on
    each rank."""
    connector = import_module(CONNECTOR)
    KVConnectorFactory._registry["HicacheConnector"] = lambda: connector.HicacheConnector
    log = SimpleNamespace(warning=lambda *message: None)
    clock = lambda: SimpleNamespace(now_s=count(1.0).__next__)  # noqa: E731
    vars(connector).update(Clock=clock, _log=log, watching=lambda: UNCHANGED)
    host = pages * ranks * sum(groups_of(cache).page_bytes.values())
    settings = {"host": host, "wait_s": WAIT, "weights": "none"}
    return settings | ({"storage": "file:nowhere"} if store else {})


def ranks(config: Any, role: Any, cache: Any) -> list[Any]:
    """The worker sides of all ranks."""
    more = dict(config.kv_transfer_config.kv_connector_extra_config)
    more.pop("storage", None)  # its place is taken by `Moves`
    transfer = vars(config.kv_transfer_config) | {"kv_connector_extra_config": more}
    sides = []
    for rank in range(config.parallel_config.world_size):
        mine = Settings(**vars(config))
        mine.kv_transfer_config = Settings(**transfer)
        mine.parallel_config = Settings(**vars(config.parallel_config) | {"rank": rank})
        sides.append(import_module(CONNECTOR).HicacheConnector(mine, role, cache))
    return sides


class Moves:
    """What the sides of all ranks have under way. values: of the store. arrived: by load, the
    contents on each rank."""

    def __init__(self, memory: Memory, sides: Sequence[Any]) -> None:
        self.memory = memory
        self.jobs: dict[int, tuple[Executor, Any, list[Content]]] = {}  # and what it reads
        self.began: list[tuple[str, int]] = []
        self.values: dict[str, bytes] = {}
        self.arrived: dict[int, list[Any]] = {}
        self.number = 0
        self.ranks = [Executor(self, side) for side in sides]

    def begin(self, rank: Executor, action: Any) -> None:
        self.number += 1
        self.jobs[self.number] = rank, action, rank.begin(action)
        self.began.append((type(action).__name__, self.number))

    def end(self, number: int, fails: bool = False) -> None:
        """It is done, or has failed."""
        if number in self.jobs:
            rank, action, seen = self.jobs.pop(number)
            rank.answers[action.transfer] = rank.end(action, seen, fails)

    def cool(self, scheduler: Any) -> None:
        """Evicts all of host that can go, as other prompts would: the store alone has it then."""
        our_scheduler = scheduler.connector._scheduler
        pools = our_scheduler.driver.core.view.pools(Tier.HOST)
        for name, pool in zip(our_scheduler.groups.components, pools, strict=True):
            if pool.evictable:
                our_scheduler._feed(EvictWanted(Tier.HOST, name, pool.evictable))

    def load(self, transfer: int, blocks: Sequence[tuple[int, int]], contents: Any) -> None:
        """A load has ended on one rank. contents: of its blocks, None if it failed."""
        arrived = self.arrived.setdefault(transfer, [])
        arrived.append(contents)
        if len(arrived) < len(self.ranks):
            return
        del self.arrived[transfer]
        for at, (group, block) in enumerate(blocks):
            self.memory.is_loading(block, group)
            first, *others = [None if rank is None else rank[at] for rank in arrived]
            if first is None or any(other != first for other in others):
                self.memory.fill(block, group, BROKEN)
            else:
                self.memory.restore(block, *first)


class Executor:
    """The executor of a rank's worker side, in front of its own: what is begun ends when it is told
    to. Loads are answered in their order, and so are backups."""

    def __init__(self, moves: Moves, side: Any) -> None:
        self.moves, groups = moves, side._groups
        self.group = {group.slot(at): group for group in groups.groups for at in range(group.parts)}
        layers = [layer for group in groups.groups for layer in group.layers]
        self.salt = {layer: at * LAYER for at, layer in enumerate(layers)}
        tensors, self.blocks = {}, {}
        for item in groups.groups:
            words = -(-(2 + item.block) // 4) * 4
            for layer in item.layers:
                full = torch.zeros((side._blocks, words), dtype=torch.int64)
                self.blocks[layer] = full.numpy()
                state = item.component == STATE  # it has two tensors
                parts = [full[:, : words // 2], full[:, words // 2 :]]
                tensors[layer] = parts if state else full
        side.register_kv_caches(tensors)
        self.copier, side._worker._executor = side._worker._executor, self
        pools = {name: (buffer,) for name, buffer in side._worker.external.buffers.items()}
        parallel = side._config.parallel_config
        context = context_of(side._config, groups, tensors, side._blocks, {})
        self.stored = StoredPages(context, pools, Rank(parallel.rank, parallel.world_size))
        self.order: list[Any] = []  # actions without a reply
        self.answers: dict[int, int] = {}

    # -- what the worker side calls

    def submit(self, action: Any) -> None:
        self.order.append(action)
        self.moves.begin(self, action)

    def abandon(self, transfer: int) -> None:
        for number, (rank, action, _) in list(self.moves.jobs.items()):
            if rank is self and action.transfer == transfer:
                self.moves.end(number, True)

    def start(self) -> None:
        """What was submitted has begun."""

    def poll(self) -> list[Any]:
        replies, waits = [], set()
        for action in list(self.order):
            kind = type(action)
            if action.transfer in self.answers and kind not in waits:
                self.order.remove(action)
                replies.append(REPLIES[kind](action.transfer, self.answers.pop(action.transfer)))
            elif kind in (actions.Load, actions.Backup):
                waits.add(kind)
        return replies

    # -- what is moved

    def begin(self, action: Any) -> list[Content]:
        """What a backup reads. What a load is to write is nobody's prefix from here on."""
        memory = self.moves.memory
        if isinstance(action, actions.Backup):
            return [memory.content(block) for _, block in self._blocks(action)]
        if isinstance(action, actions.Load):
            for slot, block in self._blocks(action):
                memory.fill(block, self.group[slot].number, MOVING)
        return []

    def end(self, action: Any, seen: list[Content], fails: bool) -> int:
        """Carries an action out. Returns its pages, or 1 if it was done; of a look-up, the set of
        what can be restored, as bits."""
        if isinstance(action, actions.Load | actions.Backup):
            return self._copy(action, seen, fails)
        if isinstance(action, actions.Lookup):
            return 0 if fails else self._look_up(action)
        if isinstance(action, actions.Fetch):
            return self._fetch(action, fails)
        if isinstance(action, actions.Store):
            return self._store(action, fails)
        self.moves.values.clear()
        return 1

    def _copy(self, action: Any, seen: list[Content], fails: bool) -> int:
        blocks, memory = list(self._blocks(action)), self.moves.memory
        if isinstance(action, actions.Backup):
            for (slot, block), before in zip(blocks, seen, strict=True):
                self._put(slot, block, torn(before, memory.content(block)))
        if not fails:
            self.copier.submit(action)
            self.copier.start()
            while not (replies := self.copier.poll()):
                time.sleep(0)
            need(replies[0].ok, "CONTRACT", "a copy of the CPU device fails", "copy")
        if isinstance(action, actions.Load):
            contents = None if fails else [self._got(*place) for place in blocks]
            places = [(self.group[slot].number, block) for slot, block in blocks]
            self.moves.load(action.transfer, places, contents)
        return int(not fails)

    def _look_up(self, action: Any) -> int:
        values, there = self.moves.values, []
        for component in self.stored.components:
            columns = zip(*self.stored.keys(component, action.digests), strict=True)
            there.append([all(key in values for key in keys) for keys in columns])
        there[0][: action.known_pages] = [True] * min(action.known_pages, len(there[0]))

        def restores(pages: int) -> bool:
            starts = [max(0, pages - trail) if trail else 0 for trail in action.trailing_pages]
            return all(all(row[at:pages]) for row, at in zip(there, starts, strict=True))

        return sum(1 << at for at in range(len(action.digests)) if restores(at + 1))

    def _fetch(self, action: Any, fails: bool) -> int:
        """fails: what is behind the first half is lost."""
        arrived = int(action.pages // 2 if fails else action.pages)
        values = self.moves.values
        for item in self._items(action, written=False):
            depth = item.depth - action.first_page
            for key, pool in zip(item.keys, item.pools, strict=True):
                if depth >= arrived or key not in values:
                    arrived = min(arrived, depth)
                    values.pop(key, None)
                else:
                    pool.load(item.page, values[key])
        return arrived

    def _store(self, action: Any, fails: bool) -> int:
        """fails: the second half is refused, and some times the store has lost everything."""
        items = self._items(action, written=True)
        items = items[: len(items) // 2] if fails else items
        if fails and not action.transfer % 3:
            self.moves.values.clear()
        for item in items:
            for key, pool in zip(item.keys, item.pools, strict=True):
                self.moves.values[key] = bytes(pool.buffers(item.page)[0])
        return len(items)

    # -- where it is

    def _blocks(self, action: Any) -> Iterator[tuple[str, int]]:
        """The blocks of a load or backup, each with its slot."""
        for copy in action.copies:
            blocks = copy.target if isinstance(action, actions.Load) else copy.source
            for block in blocks.tolist():
                yield copy.component, block

    def _items(self, action: Any, written: bool) -> list[Any]:
        return [
            item for piece in action.pieces for item in self.stored.items(piece, written=written)
        ]

    def _put(self, slot: str, block: int, content: Content) -> None:
        for layer in self.group[slot].layers:
            mine = self.blocks[layer][block]
            words = np.zeros(mine.size, np.int64)
            words[: 2 + len(content[1])] = content[0], len(content[1]), *content[1]
            mine[...] = words + self.salt[layer]

    def _got(self, slot: str, block: int) -> Content:
        """The contents of which every layer has its words."""
        contents = set()
        for layer in self.group[slot].layers:
            owner, count, *rows = (self.blocks[layer][block] - self.salt[layer]).tolist()
            contents.add((owner, tuple(rows[:count])) if 0 <= count <= len(rows) else (-1, ()))
        return contents.pop() if len(contents) == 1 else (-1, ())


# -- laws


def kept(scheduler: Any) -> list[int]:
    """The blocks that the connector holds for its copies."""
    sent = scheduler.connector._scheduler.orders._sent.values()
    return [block.block_id for order in sent for block in order.blocks if not block.is_null]


def audit_emptied(scheduler: Any) -> None:
    """Raises Broken if something is on host after a reset that was not refused."""
    nodes = scheduler.connector._scheduler.driver.core.view.nodes()
    left = any(pages is not None for node in nodes for pages in node.pages[Tier.HOST])
    need(not left, "RESET", "after a reset something is on host")


def audit_rest(scheduler: Any) -> None:
    """Raises Broken if the connector remembers or holds something while nothing is under way."""
    our_scheduler = scheduler.connector._scheduler
    view = our_scheduler.driver.core.view
    for name, left in (
        ("blocks", our_scheduler.orders.held_blocks),
        ("requests of the core", len(view.requests)),
        ("transfers of the core", len(view.transfers)),
        ("requests", our_scheduler.remembered),
    ):
        text = f"{left} {name} are left in the connector, and nothing is under way"
        need(not left, "QUIESCENCE", text, f"connector {name}")
