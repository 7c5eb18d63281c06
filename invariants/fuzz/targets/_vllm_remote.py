"""A connector of our own to another engine that computed prompts before, as of nixl and others,
whose loads may fail: the offloading connector asserts that its own do not. It loads while a step
waits (by odd requests) or beside the steps (by even ones), and names the blocks that it could not
load, or the requests where blocks have several groups (v1/core/sched/scheduler.py,
_handle_invalid_blocks). Scripts copy definitions from here."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
from vllm.distributed.kv_transfer.kv_connector.v1 import base

from invariants.fuzz.targets._vllm_worker import BROKEN, MOVING, UNWRITTEN, Memory

MOST_LOADS = 3  # of a request


class RemoteLoad(NamedTuple):
    """Positions `start` to `end` of a request, into its blocks, by group."""

    request: Any
    late: bool
    start: int
    end: int
    tables: Any


class RemoteConnector(base.KVConnectorBase_V1, base.SupportsHMA):  # type: ignore[misc]
    """Both sides. The other engine has every prompt, or a part of it. Of a worker side: loses:
    how many loads that a step waits for until one fails, or 0. bad, lost: blocks and requests of
    loads that failed, until they were told of. failed: all of these requests."""

    memory: Memory
    loses: int

    def __init__(self, vllm_config: Any, role: Any, kv_cache_config: Any) -> None:
        super().__init__(vllm_config, role, kv_cache_config)
        settings = vllm_config.kv_transfer_config.kv_connector_extra_config
        self.block_tokens, self.ahead = settings["whole"], settings["ahead"]
        self.entire = settings["entire"]
        self.loads: list[RemoteLoad] = []
        self.requested: dict[str, tuple[int, bool]] = {}
        self.times: Counter[str] = Counter()
        self.jobs: dict[int, RemoteLoad] = {}
        self.began: list[tuple[str, int]] = []
        self.done: set[str] = set()
        self.bad: set[int] = set()
        self.lost: set[str] = set()
        self.failed: set[str] = set()
        self.number = self.waited = 0

    # -- the scheduler side

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int, bool]:
        number, prompt = int(request.request_id), int(request.num_prompt_tokens)
        late = self.ahead or number % 2 == 0
        entire = late and self.entire and number % 3
        have = prompt if entire else (prompt - 1) // self.block_tokens * self.block_tokens
        more = have - number % 4 // 2 * self.block_tokens - num_computed_tokens
        if more <= 0 or self.times[request.request_id] >= MOST_LOADS:
            return 0, False
        self.requested[request.request_id] = num_computed_tokens, late
        return more, late

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        if num_external_tokens:
            name = request.request_id
            self.times[name] += 1
            start, late = self.requested[name]
            end = start + num_external_tokens
            self.loads.append(RemoteLoad(request, late, start, end, blocks.get_block_ids()))

    def build_connector_meta(self, scheduler_output: Any) -> list[RemoteLoad]:
        loads, self.loads = self.loads, []
        return loads

    def request_finished(self, request: Any, block_ids: Any) -> tuple[bool, None]:
        return False, None

    request_finished_all_groups = request_finished

    # -- the worker side

    def start_load_kv(self, forward_context: Any, **more: Any) -> None:
        for load in self._get_connector_metadata():
            self.begin(load)

    def wait_for_save(self, *args: Any) -> None:
        """Nothing is sent, and loads that a step waits for are done at once."""

    wait_for_layer_load = save_kv_layer = wait_for_save

    def get_transfer_results(self, finished_req_ids: set[str]) -> Any:
        results = base.KVConnectorTransferResults(set(), self.done, self.lost)
        self.done, self.lost = set(), set()
        return results

    def get_block_ids_with_load_errors(self) -> set[int]:
        bad, self.bad = self.bad, set()
        return bad

    # -- what is loaded

    def begin(self, load: RemoteLoad) -> None:
        self.number += 1
        if load.late:
            for block, group, _ in self._places(load):
                self.memory.fill(block, group, MOVING)
            self.jobs[self.number] = load
            self.began.append(("Load", self.number))
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
            self.memory.is_loading(block, group)
        self._arrive(load, number, fails)
        self.done.add(load.request.request_id)

    def _arrive(self, load: RemoteLoad, number: int, fails: bool) -> None:
        places, single = self._places(load), len(load.tables) == 1
        chain = self.memory.chain(load.request, load.end)
        for block, group, first in places:
            size = self.memory.groups[group].block
            rows = chain[first : min(first + size, load.end)]
            self.memory.rotten.discard(block)
            self.memory.restore(block, group, [*rows, *[UNWRITTEN] * (size - len(rows))])
        if not fails or not places:
            return
        self.failed.add(load.request.request_id)
        if not single:
            self.lost.add(load.request.request_id)
        for block, group, _ in places[number % len(places) :: 2] if single else places:
            self.memory.fill(block, group, BROKEN)
            self.memory.rotten.add(block)
            if single:
                self.bad.add(block)

    def _places(self, load: RemoteLoad) -> list[tuple[int, int, int]]:
        """The blocks of a load, each with its group and first position."""
        return [
            (table[index], group, index * item.block)
            for group, (table, item) in enumerate(zip(load.tables, self.memory.groups, strict=True))
            for index in range(load.start // item.block, -(-load.end // item.block))
            if index < len(table) and table[index]
        ]


def remote(block_tokens: int, ahead: bool, entire: bool) -> dict[str, Any]:
    """The settings of such a connector, which vLLM then knows by its name. block_tokens: tokens
    that hits are multiples of, but for entire prompts. ahead: no step waits for a load. entire: it
    may load a prompt to its last token."""
    KVConnectorFactory._registry["Remote"] = lambda: RemoteConnector
    return {"whole": block_tokens, "ahead": ahead, "entire": entire}
