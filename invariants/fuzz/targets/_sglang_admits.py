"""How a request comes into SGLang's cache: it is looked up, waits for the store, is given room,
loads what hit on the host, and gets a row, with the calls of SGLang's scheduler
(schedule_policy.py, schedule_batch.py)."""

from __future__ import annotations

from typing import Any

from sglang.srt.mem_cache.allocation import alloc_req_slots
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey

from invariants.fuzz.records import Job
from invariants.fuzz.script import Recorder, raw
from invariants.fuzz.target import Config, Hit, Peer, Unfit, need
from invariants.fuzz.targets._sglang_calls import Calls
from invariants.fuzz.targets._sglang_doubles import World, new_request, token_list
from invariants.fuzz.targets._sglang_events import Mirror
from invariants.fuzz.targets._sglang_ops import EVERYTHING
from invariants.fuzz.targets._sglang_state import (
    begin_states,
    compute,
    generate,
    judge_admission,
    judge_match,
    judge_state,
    on_device,
    seat,
    take_slots,
    track,
)
from invariants.fuzz.targets._sglang_storage import arrived, ask, asks_again, forget, retry


class Admits(Peer):
    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        self.world = recorder.make("world", World, config)
        plain: World = raw(self.world)
        if plain.cache._tree_core_backend != config["core"]:
            raise Unfit(f"the core {config['core']} does not do this")
        self.plain = plain
        self.cache, self.rows = self.world.cache, self.world.rows
        self.calls = Calls(recorder, self.cache, self.rows, self.world.allocator)
        self.running: dict[int, Any] = {}  # requests with a row
        self.mirror = recorder.make("mirror", Mirror) if config["events"] else None
        self.judged = -1  # changes of the pools when what requests read was judged
        self.told = 0  # copies that the hand knows
        self.cooled = 0  # how often
        self.waiting: dict[int, Any] = {}  # requests that the store knows
        self.begun: dict[str, tuple[Any, int]] = {}  # items of each queue that the hand knows
        self.storing = plain.storage is not None

        def own(function: Any) -> Any:
            recorder.reference(function)
            return recorder.wrap(function.__name__, function)

        self.take_row, self.seat, self.take_slots = map(own, (alloc_req_slots, seat, take_slots))
        self.compute, self.generate, self.track = map(own, (compute, generate, track))
        self.begin_states = own(begin_states)
        if self.storing:
            self.ask, self.arrived, self.asks_again = map(own, (ask, arrived, asks_again))
            self.retry, self.forget = map(own, (retry, forget))

    def match(self, job: Job) -> Hit:
        space = self._space(job)
        key = self.recorder.make("key", RadixKey, token_list(job.tokens), space or None)
        found = self.cache.match_prefix(MatchPrefixParams(key=key))
        self.recorder.check(judge_match, self.world, job.tokens, space, found)
        return Hit(on_device(raw(found)), raw(found).host_hit_length)

    def _space(self, job: Job) -> str:
        return "" if self.config["events"] else job.namespace

    def fits(self, job: Job) -> bool:
        page, config = self.config["page"], self.config
        pages = -(-len(job.tokens) // page)
        windows = pages <= config["swa_pages"] or "swa" not in self.plain.pools
        return pages <= config["pages"] and windows and self._may_run()

    def _may_run(self) -> bool:
        if "mamba" not in self.plain.pools:
            return True
        each = 5 if self.config["extra"] else 3
        return len(self.running) < self.plain.pools["mamba"].pages // each

    def _states_left(self) -> int:
        core, pool = self.plain.core, self.plain.pools.get("mamba")
        if pool is None:
            return EVERYTHING
        return int(pool.available_size()) + int(core.mamba_evictable_size())

    def admit(self, job: Job) -> Hit | None:
        if len(self.running) >= self.rows.size or not self._may_run():
            return None
        request = self._arrived(job) if self.storing else self._new(job)
        if request is None or self._states_left() < 3 + 2 * self.config["extra"]:
            return None
        request.init_next_round_input(self.cache)
        if len(job.tokens) > 1:
            self.recorder.check(judge_admission, self.world, request)
        if self.storing and self.asks_again(self.world, request):
            return None
        device = self.calls.hit(request)
        held = self.calls.lock(request.last_node)
        loaded = self._reserve(request, len(job.tokens))
        if loaded is not None:
            self.calls.keep(request)
        self.calls.unlock(held)
        if loaded is None:
            self._give_state_back(request)
            return None
        self.take_row(self.rows, [request], self.cache)
        self.running[job.id] = request
        self.waiting.pop(job.id, None)
        hit = self.calls.hit(request)
        self.seat(self.world, request, self.calls.prefix(request))
        self._start()
        if "mamba" in self.plain.pools:
            copied = raw(request).kv.mamba_cow_src_index is not None
            self.begin_states(self.world, request)
            if hit or copied:
                self.recorder.check(judge_state, self.world, request, hit, copied)
        job.computed = hit
        return Hit(device, loaded)

    def _new(self, job: Job) -> Any:
        return self.recorder.make(
            f"request{job.id}", new_request, job.id, job.tokens, self._space(job)
        )

    def arrive(self, job: Job) -> None:
        if self.storing:
            self.waiting[job.id] = request = self._new(job)
            self.ask(self.world, request)

    def _arrived(self, job: Job) -> Any:
        """The request, once it need not wait for the store; the scheduler's queue is retried."""
        self.retry(self.world, list(self.waiting.values()))
        request = self.waiting[job.id]
        fetched = self.arrived(self.world, request)
        self.counts["waits for the store"] += fetched is None
        self.counts["hit in the store"] += bool(fetched)
        return None if fetched is None else request

    def leave(self, job: Job) -> None:
        request = self.waiting.pop(job.id, None)
        if request is not None:
            self.forget(self.world, request)
            self._give_state_back(request)

    def _reserve(self, request: Any, until: int) -> int | None:
        """Loads what hit on the host, and returns its tokens, or None if the request does not fit.
        After a load it is admitted; what the cache does not load is computed."""
        if self.calls.hits_host(request):
            if not self._room_to_load(raw(request)):
                return None
            loaded = self._load(request)
            if loaded or not raw(request).host_hit_length:
                return loaded
            self.counts["loads called off"] += 1
        return 0 if self._budget(request, until) and self._state_budget(request) else None

    def _load(self, request: Any) -> int:
        """Loads what hit on the host, as PrefillAdder.add_one_req does."""
        promised = raw(request).host_hit_length
        held = self.calls.lock(request.best_match_node, host=True)
        loaded = self.calls.load(request, self.calls.wanted(request))
        self.calls.unlock(held)
        text = f"{promised} tokens were promised, {loaded} are loaded"
        need(not 0 < loaded < promised, "CONTRACT", text, "part of a load")
        self.counts["loaded tokens"] += loaded
        return loaded

    def _room_to_load(self, request: Any) -> bool:
        """What PrefillBudget.prepare_load_back makes sure of: slots for the load and the rest."""
        if not self._budget(request, len(request.origin_input_ids)):
            return False
        return self._state_budget(request, int(request.mamba_host_hit_length > 0))

    def _budget(self, request: Any, until: int) -> bool:
        """Whether as many slots can be had, by evictions if need be."""
        core, pools, page = self.plain.core, self.plain.pools, self.config["page"]
        lacks = -(-until // page) * page - self.calls.hit(request)
        full = pools["full"].available_size() + core.full_evictable_size()
        if "swa" in pools and lacks > pools["swa"].available_size() + core.swa_evictable_size():
            return False
        return bool(lacks <= full)

    def _state_budget(self, request: Any, loads: int = 0) -> bool:
        own = int(raw(request).kv.mamba_pool_idx is None)
        return self._states_left() >= own + loads + 2 * int(self.config["extra"])

    def _give_state_back(self, request: Any) -> None:
        """As the scheduler does with a request that it could not add."""
        kv = raw(request).kv
        if kv.mamba_pool_idx is None:
            return
        request.kv.mamba_cow_src_index = None
        request.kv.mamba_needs_clear = False
        self.rows.mamba_allocator.free(kv.mamba_pool_idx.unsqueeze(-1))
        request.kv.mamba_pool_idx = None

    def _start(self) -> None:
        """Submits the loads of the batch."""
        if self.config["host"]:
            self.world.copies.after_passes()
            self.cache.ready_to_load_host_cache()
