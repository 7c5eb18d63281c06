"""SGLang's prefix cache: UnifiedRadixCache with its real HybridCacheController, both tree cores.

The target is SGLang's scheduler: requests are its `Req`, and admitting, publishing and ending them
are the calls of its scheduler in their order (managers/schedule_policy.py, schedule_batch.py and
mem_cache/common.py). Doubled is what has a device behind it: see _sglang_doubles.

What callers must know, and what is not a defect:

- Every pass is published before the next one, and a window is left only after as many decode steps.
- With states, at most a third of their slots have running requests, or a fifth with slots for page
  boundaries (the ratios of model_runner_kv_cache_mixin); otherwise "Can not alloc mamba cache".
- `extra_key` is not part of the hashes of KV events, so prompts then have no namespace.
- A pass waits on the device for the loads before it, so a load has moved then, and is only
  acknowledged later. A load that no admitted request needs waits for the next batch.
- While a load is in flight under write-through, sanity_check misses host duplicates that
  finish_load_back records later. It is not called then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import torch
from sglang.srt.managers.schedule_batch import FINISH_LENGTH
from sglang.srt.mem_cache import base_prefix_cache as prefix
from sglang.srt.mem_cache import common
from sglang.srt.mem_cache.allocation import alloc_req_slots
from sglang.srt.mem_cache.radix_cache import RadixKey

from invariants.fuzz import sequence
from invariants.fuzz.draws import Draws
from invariants.fuzz.operations import OF_A_CACHE, Arguments, Player
from invariants.fuzz.schedules import Job
from invariants.fuzz.script import Recorder, raw
from invariants.fuzz.target import Can, Config, Hit, Target, Transfer, Unfit, need
from invariants.fuzz.targets import _sglang_state as state
from invariants.fuzz.targets import _sglang_storage as store
from invariants.fuzz.targets._sglang_doubles import NAMES, World, new_request, token_list

DISTRIBUTION = "sglang"
RELEASES = ("0.5.22", "0.5.23")
NEEDS = ("msgspec==0.22.0", "packaging==26.4")
STUBS = (
    "PIL orjson psutil pybase64 pydantic pydantic_core requests sgl_kernel sglang.kernels "
    "sglang.srt.configs.model_config sglang.srt.layers sglang.srt.managers.overlap_utils "
    "sglang.srt.parser sglang.srt.sampling sglang.srt.utils.hf_transformers "
    "sglang.srt.utils.hf_transformers_utils starlette torch_memory_saver torchada torchcodec "
    "torchvision tqdm transformers triton zmq"
)
BARE = ("sglang", "sglang.srt.configs")
DOUBLES = ("_sglang_storage.py", "_sglang_doubles.py", "_sglang_state.py")

torch.set_num_threads(1)
MODE = torch.inference_mode()  # one of the two of its scheduler (DynamicGradMode)
MODE.__enter__()
logging.disable(logging.CRITICAL)

EVERYTHING = 1 << 30
AMOUNTS = {"full": "num_tokens", "swa": "swa_num_tokens", "mamba": "mamba_num"}  # of EvictParams
WORK = {"prefetch_queue": "Lookup", "backup_queue": "Store"}  # of others: Fetch
FAULTS = ("raise", "short", "none")  # a store fails, ends short, or has nothing
COMPONENTS = ("full", "full+swa", "full+mamba", "full+swa+mamba")
PREFETCHES = ("best_effort", "wait_complete", "timeout")
POLICIES = ("write_through", "write_through_selective", "write_back")
ORDERS = ("lru", "lfu", "fifo", "slru", "mru", "filo")
# The values that a setting may have (none: any number), and that which plays no role.
SETTINGS: dict[str, tuple[tuple[Any, ...], Any]] = {
    "core": (("rust", "python"), None),
    "components": (COMPONENTS, None),
    "events": ((True, False), False),
    "bigram": ((True, False), False),
    "policy": (POLICIES, "write_through"),
    "order": (ORDERS, "lru"),
    "states": ((), -1),
    "load_from": ((), 1),
    "host": ((), 0),
    "page": ((), 1),
    "pages": ((), 40),
    "swa_pages": ((), 40),
    "mamba": ((), 12),
    "window": ((), None),
    "host_swa": ((), 40),
    "host_mamba": ((), 10),
    "extra": ((True, False), None),
    "storage": (("none", "zero_copy", "hicache"), "none"),  # the last one is not drawn
    "prefetch": (PREFETCHES, "wait_complete"),
}


# -- an operation of its own


def _draw_overtake(player: Player, draws: Draws) -> Arguments | None:
    args = OF_A_CACHE["revisit"].draw(player, draws) if player.config["storage"] != "none" else None
    if args is None:
        return None
    pages = max(1, len(sequence.unpack(args["tokens"])) // player.page)
    first = draws.between(1, pages)
    second = draws.between(first, pages)
    del args["chunk"]
    return args | {"first": first * player.page, "second": second * player.page}


def _overtake(player: Player, args: Arguments) -> None:
    """A request waits for an earlier prompt that the store alone has; meanwhile two requests for
    beginnings of it run to their end."""
    target: Any = player.target
    if not target.storing:
        return
    target.cool()
    player.collect()
    player.now += 20
    player.take_due()
    for pool in target.can.evicts:
        target.evict(pool, EVERYTHING)
    OF_A_CACHE["arrive"].play(player, args)
    player.collect()
    player.now += 4
    player.take_due()
    tokens = sequence.unpack(args["tokens"])
    for cut in (int(args["first"]), int(args["second"])):
        request = 1 + max(player.used, default=-1)
        some = sequence.pack([*tokens[:cut], tokens[0]])
        OF_A_CACHE["arrive"].play(player, {**args, "request": request, "tokens": some})
        OF_A_CACHE["admit"].play(player, {"request": request, "chunk": cut + 1})
        OF_A_CACHE["finish"].play(player, {"request": request, "keep": True})
        player.collect()


_CUT = sequence.number(1, sequence.MOST_TOKENS)
_OVERTAKE = {
    "request": sequence.NEW_REQUEST,
    "tokens": sequence.PROMPT,
    "space": sequence.word(),
    "first": _CUT,
}


class SGLang(Target):
    """waiting, running: SGLang's requests by number. copied, begun: copies, and items of the
    store's threads, that the player knows. cooled: how often."""

    can: ClassVar[Can] = Can(
        host=True,
        fails=True,
        namespaces=True,
        evicts=("full", "swa", "mamba", "host full", "host swa", "host mamba"),
    )
    TAKES: ClassVar = {key: values for key, (values, _) in SETTINGS.items()}
    OPERATIONS: ClassVar = {
        "overtake": sequence.Operation(9, _OVERTAKE | {"second": _CUT}, _draw_overtake, _overtake)
    }

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        """Small pools, so that slots are short."""
        parts = str(fixed.get("components") or draws.choice((*COMPONENTS, *COMPONENTS[:3])))
        states = "mamba" in parts
        extra = bool(fixed.get("extra", states and draws.chance(60)))
        page = 1 if states and not extra else draws.choice((1, 1, 2, 4))
        stores = fixed.get("storage", "none") != "none"
        host = draws.between(4, 50) if stores or draws.chance(75) else 0
        config = {
            "core": draws.choice(("rust", "python")),
            "components": parts,
            "page": page,
            "pages": draws.between(8, 40),
            "swa_pages": draws.between(8, 40) if "swa" in parts else 0,
            "mamba": draws.between(3, 12) + 8 * extra if states else 0,
            "window": draws.choice((2, 3, 4, 8)) if "swa" in parts else 0,
            "host": host,
            "host_swa": draws.between(2, 40) if host and "swa" in parts else 0,
            "host_mamba": draws.between(1, 10) if host and states else 0,
            "policy": draws.choice(POLICIES),
            "order": draws.choice((*ORDERS, "lru", "lru")),
            "load_from": draws.choice((0, 1, 1, 3)),
            "states": draws.choice((-1, -1, 1, 2)) if states else -1,
            "events": draws.chance(20),
            "bigram": not states and draws.chance(25),
            "extra": extra,
            "storage": "zero_copy" if host and draws.chance(27) else "none",
            "prefetch": draws.choice(PREFETCHES),
        }
        return config | fixed

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        parts = str(config["components"]).split("+")
        configs = [
            config | {"components": "+".join(item for item in parts if item != part)}
            for part in parts[1:]
        ]
        for key, (_, plain) in SETTINGS.items():
            if plain is not None and config.get(key) and config[key] != plain:
                configs.append(config | {key: plain})
        return configs

    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        self.world = recorder.make("world", World, config)
        plain: World = raw(self.world)
        if plain.cache._tree_core_backend != config["core"]:
            raise Unfit(f"the core {config['core']} does not do this")
        self.plain = plain
        self.cache, self.rows = self.world.cache, self.world.rows
        self.record = recorder.make("record", state.Record) if config["events"] else None
        self.storing, self.states = plain.storage is not None, "mamba" in plain.pools
        self.waiting: dict[int, Any] = {}
        self.running: dict[int, Any] = {}
        self.copied = self.begun = self.cooled = 0

    def call(self, function: Callable[..., Any], *args: Any, **named: Any) -> Any:
        """Calls a function of the engine or of the doubles, as a line of a script."""
        return self.recorder.make("", function, *args, **named)

    # -- requests that wait

    def _space(self, job: Job) -> str:
        return "" if self.config["events"] else job.namespace

    def match(self, job: Job) -> Hit:
        space = self._space(job)
        key = self.recorder.make("key", RadixKey, token_list(job.tokens), space or None)
        result = self.cache.match_prefix(prefix.MatchPrefixParams(key=key))
        hit, node = int(raw(result).device_prefix_len), result.last_device_node
        self.recorder.check(state.judge_match, self.world, job.tokens, space, result, hit, node)
        return Hit(hit, raw(result).host_hit_length)

    def arrive(self, job: Job) -> None:
        arguments = (job.id, job.tokens, self._space(job))
        request = self.recorder.make(f"request{job.id}", new_request, *arguments)
        self.waiting[job.id] = request
        if self.storing:
            self.call(store.ask, self.world, request)

    def leave(self, job: Job) -> None:
        request = self.waiting.pop(job.id)
        if self.storing:
            self.cache.release_aborted_request(request.cache_request_handle)
        self._give_state_back(request)

    def fits(self, job: Job) -> bool:
        config = self.config
        pages = -(-len(job.tokens) // config["page"])
        windows = pages <= config["swa_pages"] or "swa" not in self.plain.pools
        return pages <= config["pages"] and windows and self._may_run()

    def _may_run(self) -> bool:
        each = 5 if self.config["extra"] else 3
        return not self.states or len(self.running) < self.plain.pools["mamba"].pages // each

    def _states_left(self) -> int:
        if not self.states:
            return EVERYTHING
        return int(self.plain.pools["mamba"].available_size()) + self.plain.sizes("mamba")[0]

    def admit(self, job: Job) -> Hit | None:
        request = self.waiting[job.id]
        if len(self.running) >= self.rows.size or not self._may_run():
            return None
        if self.storing and not self._arrived(request):
            return None
        own = raw(request).kv.mamba_pool_idx is not None  # from an attempt before
        if self._states_left() + own < 3 + 2 * self.config["extra"]:
            return None
        request.init_next_round_input(self.cache)
        if len(job.tokens) > 1:
            self.recorder.check(state.judge_admission, self.world, request)
        if self.storing and self.call(store.asks_again, self.world, request):
            return None
        plain = raw(request)
        device = int(plain.prefix_len)
        lock = self.cache.lock(request.last_node)  # as _lock_node does
        loaded = self._reserve(request)
        if loaded is not None:
            request.lock = self.cache.lock(request.last_node)
        self.cache.unlock(lock)
        if loaded is None:
            self._give_state_back(request)
            return None
        self.call(alloc_req_slots, self.rows, [request], self.cache)
        self.running[job.id] = self.waiting.pop(job.id)
        job.computed = int(plain.prefix_len)
        self.call(state.seat, self.world, request)
        self._start()
        if self.states:
            self.recorder.check(state.judge_state, self.world, request)
        return Hit(device, loaded)

    def _arrived(self, request: Any) -> bool:
        """Whether it need not wait for the store any more; the scheduler's queue is retried."""
        self.call(store.retry, self.world, list(self.waiting.values()))
        handle = request.cache_request_handle
        if not self.cache.check_prefetch_progress(handle):
            self.counts["waits for the store"] += 1
            return False
        self.counts["hit in the store"] += self.cache.pop_prefetch_loaded_tokens(handle) > 0
        return True

    def _reserve(self, request: Any) -> int | None:
        """Loads what hit on the host, and returns its tokens, or None if the request is too large.
        After a load it is admitted, and the rest computed."""
        plain = raw(request)
        if plain.needs_host_load_back():
            if not self._fits(plain, int(plain.mamba_host_hit_length > 0)):
                return None
            loaded = self._load(request, plain.host_hit_length)
            if loaded or not plain.host_hit_length:
                return loaded
            self.counts["loads called off"] += 1
        return 0 if self._fits(plain) else None

    def _load(self, request: Any, promised: int) -> int:
        """Loads what hit on the host, as PrefillAdder.add_one_req does."""
        cache, node = self.cache, request.best_match_node
        kept = cache.inc_host_lock_ref(node).to_dec_params()
        lock = cache.lock(node)
        params = {"best_match_node": node, "host_hit_length": promised, "req": request}
        loaded, request.last_node = cache.init_load_back(prefix.InitLoadBackParams(**params))
        if loaded:
            length = int(raw(request).prefix_len) + loaded
            request.prefix_len = request.kv.cache_protected_len = length
        cache.unlock(lock)
        cache.dec_host_lock_ref(node, kept)
        text = f"{promised} tokens were promised, {loaded} are loaded"
        need(not 0 < loaded < promised, "CONTRACT", text, "part of a load")
        self.counts["loaded tokens"] += loaded
        return int(loaded)

    def _fits(self, request: Any, loads: int = 0) -> bool:
        """Whether its slots, its states and those of its load can be had, by evictions if need be
        (PrefillBudget.prepare_load_back)."""
        plain, page = self.plain, self.config["page"]
        lacks = -(-len(request.origin_input_ids) // page) * page - request.prefix_len
        for part in ("full", "swa"):
            pool = plain.pools.get(part)
            if pool is not None and lacks > pool.available_size() + plain.sizes(part)[0]:
                return False
        own = int(request.kv.mamba_pool_idx is None)
        return self._states_left() >= own + loads + 2 * int(self.config["extra"])

    def _give_state_back(self, request: Any) -> None:
        """As the scheduler does with a request that it could not add."""
        state = raw(request).kv.mamba_pool_idx
        if state is not None:
            request.kv.mamba_cow_src_index = None
            request.kv.mamba_needs_clear = False
            self.rows.mamba_allocator.free(state.unsqueeze(-1))
            request.kv.mamba_pool_idx = None

    def _start(self) -> None:
        """Submits the loads of the batch."""
        if self.config["host"]:
            self.world.copies.after_passes()
            self.cache.ready_to_load_host_cache()

    # -- requests that run

    def prefill(self, job: Job, until: int) -> bool:
        request, page = self.running[job.id], self.config["page"]
        start, goal = raw(request).kv.kv_committed_len, until
        if until < job.prompt:  # chunks end with a page
            goal = min(job.prompt, max(until, start + page) // page * page)
        if goal <= start:
            return True
        # Where unanswered backups lock every state, SGLang raises "Can not alloc mamba cache".
        if not self._states_left() or not self._make_room(request, goal):
            self.world.copies.before_pass()  # loads end all the same
            return False
        request.init_next_round_input()
        request.prefix_len, request.extend_end = start, goal
        if self.states:
            self.recorder.check(state.judge_state, self.world, request)
        self.call(state.forward, self.world, request, start, goal)
        self.recorder.check(state.judge_reads, self.world, [request])
        self.call(common.checkpoint_kv_cache, request, self.cache)
        return True

    def _make_room(self, request: Any, until: int) -> bool:
        """Evicts what is lacking, as alloc_for_extend does."""
        page, pools, taken = self.config["page"], self.plain.pools, raw(request).kv.kv_allocated_len
        lacks = (-(-until // page) - -(-taken // page)) * page
        if lacks > 0:
            self.call(common.evict_from_tree_cache, self.cache, lacks)
        both = [pools[part] for part in ("full", "swa") if part in pools]
        return all(pool.available_size() >= lacks for pool in both)

    def decode(self, job: Job, tokens: Sequence[int]) -> bool:
        request = self.running[job.id]
        start = raw(request).kv.kv_committed_len
        if not self._make_room(request, start + len(tokens)):
            return False
        for at, token in enumerate(tokens, start):
            if "swa" in self.plain.pools and raw(request).decode_batch_idx >= 1:
                self._slide(request)
            self.call(state.forward, self.world, request, at, at + 1, token)
        return True

    def _slide(self, request: Any) -> None:
        """Frees what a decoding request's window has left behind (maybe_evict_swa)."""
        cache, plain, seqlen = raw(self.cache), raw(request), raw(request).seqlen
        self.world.allocator.free_group_begin()
        if hasattr(cache, "evict_sliding_windows"):
            self.cache.evict_sliding_windows(request, seqlen)
        else:  # 0.5.22
            self.call(
                common.free_swa_out_of_window_slots,
                request,
                seqlen,
                sliding_window_size=cache.sliding_window_size,
                page_size=cache.page_size,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.world.allocator,
                retain_floor=cache.swa_retain_floor(plain),
            )
        if plain.decode_batch_idx >= cache.sliding_window_size:
            self.cache.release_swa_prefix_lock(request)
        self.world.allocator.free_group_end()

    def finish(self, job: Job, keep: bool) -> None:
        request = self.running.pop(job.id)
        reason = self.recorder.make("reason", FINISH_LENGTH, len(job.tokens))
        request.finished_reason = reason
        keep = keep and job.stage == "decoding"
        self.call(common.release_kv_cache, request, self.cache, checkpoint=keep)

    def abort(self, job: Job) -> None:
        self.finish(job, False)

    def retract(self, job: Job) -> None:
        request = self.running.pop(job.id)
        self.call(common.release_kv_cache, request, self.cache, checkpoint=False)
        self.arrive(job)

    # -- the cache

    def evict(self, pool: str, slots: int) -> int:
        if pool not in self.plain.pools:
            return 0
        tier, _, part = pool.rpartition(" ")
        if tier:
            return int(self.cache.evict_host(slots, NAMES[part]))
        freed = self.cache.evict(prefix.EvictParams(**{"num_tokens": 0, AMOUNTS[part]: slots}))
        return int(getattr(raw(freed), f"{AMOUNTS[part]}_evicted"))

    def cool(self) -> None:
        """With a store, every second time also from the host."""
        super().cool()
        self.cooled += 1
        for pool in self.can.evicts if self.storing and self.cooled % 2 else ():
            self.evict(pool, EVERYTHING)

    def release_all(self) -> None:
        self._start()
        for pool in self.can.evicts:
            self.evict(pool, EVERYTHING)

    def reset(self) -> bool:
        if self.running:
            return False
        self.cache.reset()
        self.rows.clear()
        self.world.allocator.clear()
        return True

    # -- transfers

    def transfers(self) -> Sequence[Transfer]:
        if not self.config["host"]:
            return ()
        if self.plain.cache.cache_controller.write_queue:
            self.cache.flush_pending_backups()
        copies = [copy for copy in self.plain.copies.all[self.copied :] if not copy.done]
        begun: list[Transfer] = [
            Transfer("Backup" if copy.to_host else "Load", copy, False) for copy in copies
        ]
        self.copied = len(self.plain.copies.all)
        if self.storing:
            items = self.plain.storage.begun
            new = range(self.begun, len(items))
            begun += [Transfer(WORK.get(items[at][0], "Fetch"), at) for at in new]
            self.begun = len(items)
        return begun

    def answer(self, transfer: Transfer, fault: str) -> None:
        if isinstance(transfer.what, int):  # of the store
            fault = FAULTS[transfer.what % 3] if fault else ""
            self.world.storage.work(transfer.what, fault)
        elif not transfer.what.done:
            self.world.copies.finish(transfer.what.number)

    def poll(self) -> None:
        if self.config["host"] and (self.storing or self.plain.busy()):
            self.cache.check_hicache_events()

    # -- the state

    def pools(self) -> Any:
        requests = [*self.running.values(), *self.waiting.values()]
        return self.recorder.pure(state.pools_of, self.world, requests)

    def free(self) -> dict[str, int]:
        return {name: pool.available_size() for name, pool in self.plain.pools.items()}

    def laws(self) -> None:
        self.recorder.check(state.judge_reads, self.world, list(self.running.values()))
        if self.record is not None:
            self.record.judge(self.world)

    def self_check(self) -> None:
        cache = self.plain.cache
        if not cache.ongoing_load_back or self.config["policy"] == "write_back":
            cache.sanity_check()

    def close(self) -> None:
        if self.storing:
            self.plain.storage.close()


TARGET = SGLang
