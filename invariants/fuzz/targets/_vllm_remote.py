"""A connector of our own to another engine that computed prompts before, as of nixl and others,
whose loads may fail: the offloading connector asserts that its own do not. It loads while a step
waits (by odd requests) or beside the steps (by even ones), and names the blocks that it could not
load, or the requests where blocks have several groups (v1/core/sched/scheduler.py,
_handle_invalid_blocks). Scripts copy definitions from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    SupportsHMA,
)

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_doubles import BROKEN, UNWRITTEN, Memory

BEING_LOADED = -3
MOST_LOADS = 3  # of a request


class Wanted(NamedTuple):
    """A load: positions `start` to `end` of a request, into its blocks, by group."""

    request: Any
    late: bool
    start: int
    end: int
    tables: Sequence[Sequence[int]]


class Wishes(KVConnectorMetadata):  # type: ignore[misc]
    """What the scheduler's half tells the worker's."""

    def __init__(self, loads: list[Wanted]) -> None:
        self.loads = loads


class RemoteConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """Both halves. The other engine has every prompt, or a part of it."""

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        settings = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.whole, self.ahead = int(settings["whole"]), bool(settings["ahead"])
        self.entire = bool(settings["entire"])
        self.loads: list[Wanted] = []
        self.asked: dict[str, tuple[int, bool]] = {}
        self.times: dict[str, int] = {}
        self.mover: Any = None

    # -- the scheduler's half

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        number, prompt = int(request.request_id), int(request.num_prompt_tokens)
        late = self.ahead or number % 2 == 0
        have = (
            prompt
            if late and self.entire and number % 3
            else (prompt - 1) // self.whole * self.whole
        )
        have -= number % 4 // 2 * self.whole
        more = have - num_computed_tokens
        if more <= 0 or self.times.get(request.request_id, 0) >= MOST_LOADS:
            return 0, False
        self.asked[request.request_id] = num_computed_tokens, late
        return more, late

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            name = request.request_id
            self.times[name] = self.times.get(name, 0) + 1
            start, late = self.asked[name]
            end = start + num_external_tokens
            self.loads.append(Wanted(request, late, start, end, blocks.get_block_ids()))

    def build_connector_meta(self, scheduler_output: Any) -> Wishes:
        loads, self.loads = self.loads, []
        return Wishes(loads)

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    def request_finished_all_groups(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    # -- the worker's half

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        for one in self._get_connector_metadata().loads:
            self.mover.begin(one)

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Loads that a step waits for are done at once."""

    def save_kv_layer(self, *given: Any, **more: Any) -> None:
        """Nothing is sent."""

    def wait_for_save(self) -> None:
        """Nothing is sent."""

    def get_finished(self, finished_req_ids: set[str]) -> tuple[None, set[str]]:
        done, self.mover.done = self.mover.done, []
        return None, set(done)

    def get_block_ids_with_load_errors(self) -> set[int]:
        bad: set[int] = self.mover.bad
        self.mover.bad = set()
        return bad

    def failed(self) -> set[str]:
        """The requests whose loads failed as a whole."""
        lost: set[str] = self.mover.lost
        self.mover.lost = set()
        return lost


class Arrivals:
    """Carries out loads. loses: how many loads that a step waits for until one fails, or 0."""

    def __init__(self, memory: Memory, loses: int) -> None:
        self.memory, self.loses = memory, loses
        self.jobs: dict[int, Wanted] = {}
        self.began: list[tuple[int, bool]] = []
        self.done: list[str] = []
        self.bad: set[int] = set()  # blocks, until they were told of
        self.lost: set[str] = set()  # requests, until they were told of
        self.failed: set[str] = set()  # requests of which a load failed, ever
        self.number = self.waited = 0

    def begin(self, load: Wanted) -> None:
        self.number += 1
        if load.late:
            for block, group, _ in self._places(load):
                self.memory.fill(block, group, BEING_LOADED)
            self.jobs[self.number] = load
            self.began.append((self.number, False))
            return
        self.waited += 1
        fails = self.loses and len(load.tables) == 1 and not self.waited % self.loses
        self._arrive(load, self.number, bool(fails))

    def end(self, number: int, fails: bool = False) -> None:
        """A load beside the steps is done."""
        load = self.jobs.pop(number, None)
        if load is None:
            return
        for block, group, _ in self._places(load):
            text = f"block {block} was overwritten while a load wrote it"
            need(self.memory.is_filled(block, group, BEING_LOADED), "PIN-IO", text, "load target")
        self._arrive(load, number, fails)
        self.done.append(load.request.request_id)

    def _arrive(self, load: Wanted, number: int, fails: bool) -> None:
        places = self._places(load)
        chain = self.memory.chain(load.request, load.end)
        lost = places[number % len(places) :: 2] if fails and places else []
        if lost:
            self.failed.add(load.request.request_id)
        if lost and len(load.tables) > 1:
            self.lost.add(load.request.request_id)
            lost = places
        for block, group, first in places:
            size = self.memory.groups[group].block
            rows = chain[first : min(first + size, load.end)]
            self.memory.rotten.discard(block)
            self.memory.restore(block, group, [*rows, *[UNWRITTEN] * (size - len(rows))])
        for block, group, _ in lost:
            self.memory.fill(block, group, BROKEN)
            self.memory.rotten.add(block)
            if len(load.tables) == 1:
                self.bad.add(block)

    def _places(self, load: Wanted) -> list[tuple[int, int, int]]:
        """The blocks of a load, each with its group and first position."""
        return [
            (table[index], group, index * one.block)
            for group, (table, one) in enumerate(zip(load.tables, self.memory.groups, strict=True))
            for index in range(load.start // one.block, -(-load.end // one.block))
            if index < len(table) and table[index]
        ]


def remote(whole: int, ahead: bool, entire: bool) -> dict[str, Any]:
    """The settings of such a connector, which vLLM then knows by its name. whole: tokens that hits
    are multiples of, but for entire prompts. ahead: no step waits for a load. entire: it may load
    a prompt to its last token."""
    KVConnectorFactory._registry["Remote"] = lambda: RemoteConnector
    return {"whole": whole, "ahead": ahead, "entire": entire}


def audit_failed(manager: Any, memory: Memory) -> None:
    """Raises Broken if a block whose load failed can be hit, and nobody will compute it."""
    for number in memory.rotten:
        block = manager.block_pool.blocks[number]
        if block.block_hash is not None and not block.ref_cnt:
            text = f"block {number} is cached and free, and was never loaded nor computed"
            need(False, "BYTES", text, "index failed load")
