"""This project's own connector under vLLM's scheduler, with one rank or several, and its laws.

Real are `HicacheConnector` with both its sides, the core, the copies of the CPU device, the work
of a store's threads, and vLLM's aggregation of ranks. Stand-ins are the clock and the store: a
copy, or an action of the store, ends when it is told to. It copies tensors that have the contents
of `Memory`, and the store keeps its values in memory. Scripts copy definitions from here.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import count, islice
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory

from hicache.core import actions
from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.runtime.driver import REPLY_TO
from hicache.runtime.storage import Rank, StoredPages, Task, WorkerOptions, fetch, look_up, store
from hicache.storage.base import Status
from hicache.vllm.describing import context_of
from hicache.vllm.groups import STATE, groups_of
from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_engine import Settings
from invariants.fuzz.targets._vllm_worker import BROKEN, MOVING, Content, Memory, torn

CONNECTOR = "hicache.vllm.connector"  # imported where it is played: it needs vLLM 0.32
WAIT = 20  # looks at the clock for which a request waits for the store
WORK: dict[type, Any] = {actions.Lookup: look_up, actions.Fetch: fetch, actions.Store: store}
BATCH = 64  # pages of one call of the store
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


class Values:
    """The store of all ranks. fails: it answers no look-up, loses the second half of what is read,
    and refuses that of what is written."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.fails = False

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        return [None if self.fails else key in self.values for key in keys]

    def read(self, keys: Sequence[str], values: Any) -> list[Status]:
        for key in keys[len(keys) // 2 :] if self.fails else ():
            self.values.pop(key, None)
        for key, (value,) in zip(keys, values, strict=True):
            value[:] = self.values.get(key, value)
        return [Status.DONE if key in self.values else Status.MISSING for key in keys]

    def write(self, keys: Sequence[str], values: Any) -> list[Status]:
        taken = len(keys) // 2 if self.fails else len(keys)
        pairs = islice(zip(keys, values, strict=True), taken)
        self.values |= {key: bytes(value) for key, (value,) in pairs}
        return [Status.DONE] * taken + [Status.FULL] * (len(keys) - taken)


class Moves:
    """What the sides of all ranks have under way. arrived: by load, the contents on each rank."""

    def __init__(self, memory: Memory, sides: Sequence[Any]) -> None:
        self.memory = memory
        self.jobs: dict[int, tuple[Executor, Any, list[Content]]] = {}  # and what it reads
        self.began: list[tuple[str, int]] = []
        self.store = Values()
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
        pages = StoredPages(context, pools, Rank(parallel.rank, parallel.world_size))
        size = BATCH * pages.largest_bytes
        self.threads: Any = SimpleNamespace(store=moves.store, pages=pages, now=float)
        self.threads.options = WorkerOptions(batch_bytes=size, every_boundary=True)
        self.threads.changed, self.staging = threading.Condition(), memoryview(bytearray(size))
        self.order: list[Any] = []  # actions without a reply
        self.answers: dict[int, Any] = {}

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
                replies.append(self.answers.pop(action.transfer))
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

    def end(self, action: Any, seen: list[Content], fails: bool) -> Any:
        """Carries an action out. Returns its reply."""
        if isinstance(action, actions.Load | actions.Backup):
            return REPLY_TO[type(action)](action.transfer, self._copy(action, seen, fails))
        self.moves.store.fails = fails
        if fails and isinstance(action, actions.Store) and not action.transfer % 3:
            self.moves.store.values.clear()  # some times it has lost everything
        task = Task(action, self.threads)
        task.staging = self.staging
        WORK[type(action)](task, action)
        return task.reply()

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

    # -- where it is

    def _blocks(self, action: Any) -> Iterator[tuple[str, int]]:
        """The blocks of a load or backup, each with its slot."""
        for copy in action.copies:
            blocks = copy.target if isinstance(action, actions.Load) else copy.source
            for block in blocks.tolist():
                yield copy.component, block

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
