"""SGLang's prefix cache: UnifiedRadixCache with its real HybridCacheController, both tree cores.

The hand is SGLang's scheduler: requests are its `Req`, and admitting, publishing and ending them
are the calls of its scheduler in their order (managers/schedule_policy.py, schedule_batch.py and
mem_cache/common.py). Doubled is what has a device behind it: see _sglang_doubles.

What callers must know, and what is not a defect:

- Loaded slots may be matched before their load ended: readers wait for each layer
  (LayerDoneCounter).
- `init_load_back` may load more than `host_hit_length`, never less but nothing
  (PrefillAdder.add_one_req raises RuntimeError).
- Every pass is published before the next one (stash_chunked_request, process_batch_result_prefill).
- A window is left only after as many decode steps (ScheduleBatch.maybe_evict_swa).
- With states, at most a third of their slots have running requests, or a fifth with slots for page
  boundaries (the ratios of model_runner_kv_cache_mixin); otherwise "Can not alloc mamba cache".
- `extra_key` is not part of the hashes of KV events (RadixKey: "KV events see only its LoRA name"),
  so prompts have no namespace where events are read.
- A pass waits on the device for the loads before it, so a load has moved then, and is only
  acknowledged later. A load that no admitted request needs waits for the next batch.
- States that are locked until their backups are acknowledged can use up their pool; the hand then
  waits for these, where SGLang raises "Can not alloc mamba cache".
- While a load is in flight under write-through, sanity_check misses host duplicates ("Duplicate
  missing") that finish_load_back records later. It is not called then.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from sglang.srt.managers.schedule_batch import FINISH_LENGTH
from sglang.srt.mem_cache.base_prefix_cache import EvictParams

from invariants.fuzz.draws import Draws
from invariants.fuzz.records import Job
from invariants.fuzz.script import raw
from invariants.fuzz.target import (
    Backup,
    Can,
    Config,
    Fetch,
    Load,
    Lookup,
    PoolState,
    Store,
    Transfer,
    need,
)
from invariants.fuzz.targets._sglang_admits import Admits
from invariants.fuzz.targets._sglang_doubles import NAMES
from invariants.fuzz.targets._sglang_draws import TAKES, drawn, simpler
from invariants.fuzz.targets._sglang_ops import EVERYTHING, OPERATIONS
from invariants.fuzz.targets._sglang_state import (
    available,
    judge_reads,
    judge_state,
    lacking,
    mark_of,
    pools_of,
)
from invariants.fuzz.targets._sglang_threads import THREADS

DISTRIBUTION = "sglang"
RELEASES = ("0.5.22", "0.5.23")
NEEDS = ("msgspec==0.22.0", "packaging==26.4")
STUBS = (
    "IPython",
    "PIL",
    "cuda",
    "dill",
    "orjson",
    "psutil",
    "pybase64",
    "pydantic",
    "pydantic_core",
    "pynvml",
    "requests",
    "safetensors",
    "sgl_kernel",
    "sglang.jit_kernel",
    "sglang.kernels",
    "sglang.srt.configs.model_config",
    "sglang.srt.constrained",
    "sglang.srt.function_call",
    "sglang.srt.layers",
    "sglang.srt.managers.overlap_utils",
    "sglang.srt.model_executor",
    "sglang.srt.multimodal",
    "sglang.srt.parser",
    "sglang.srt.sampling",
    "sglang.srt.utils.hf_transformers",
    "sglang.srt.utils.hf_transformers_utils",
    "starlette",
    "torch_memory_saver",
    "torchada",
    "torchcodec",
    "torchvision",
    "tqdm",
    "transformers",
    "triton",
    "zmq",
)
BARE = ("sglang", "sglang.srt.configs")
DOUBLES = (
    "_sglang_copies.py",
    "_sglang_threads.py",
    "_sglang_storage.py",
    "_sglang_doubles.py",
    "_sglang_state.py",
    "_sglang_events.py",
)

torch.set_num_threads(1)
MODE = torch.inference_mode()  # one of the two of its scheduler (DynamicGradMode)
MODE.__enter__()
logging.disable(logging.WARNING)
FAULTS = ("raise", "short", "none")  # a store fails, ends short, or has nothing
WORK = {
    "prefetch_queue": Lookup,
    "prefetch_buffer": Fetch,
    "prefetch_sync_queue": Fetch,
    "backup_queue": Store,
}


class SGLang(Admits):
    can: ClassVar[Can] = Can(
        host=True,
        fails=True,
        namespaces=True,
        evicts=("full", "swa", "mamba", "host full", "host swa", "host mamba"),
    )
    TAKES = TAKES
    OPERATIONS = OPERATIONS
    REACHES = (
        *("hit on device", "hit on host", "hit in the store", "load began", "backup began"),
        *("lookup began", "fetch began", "store began", "waits for the store"),
        *("evicted slots", "loads called off", "refused", "refused chunk", "refused growth"),
        *("retract", "emptied", "emptied at once", "detached or attached"),
    )

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        return drawn(draws, fixed)

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        return simpler(config)

    # -- requests that run

    def prefill(self, job: Job, until: int) -> bool:
        request, page = self.running[job.id], self.config["page"]
        plain = raw(request)
        start, goal = plain.kv.kv_committed_len, until
        if until < job.prompt:  # chunks end with a page
            goal = min(job.prompt, max(until, start + page) // page * page)
        if goal <= start:
            return True
        if not self._take(request, goal):
            self.world.copies.before_pass()  # loads end all the same
            return False
        request.init_next_round_input()
        self.calls.extend(request, start, goal)
        if "mamba" in self.plain.pools and start:
            self.recorder.check(judge_state, self.world, request, start)
        self.compute(self.world, request, start, goal)
        self.track(self.world, request, start, goal, False)
        self.recorder.check(judge_reads, self.world, [request])
        self._wait_for_states()
        self.calls.publish(request)
        return True

    def _wait_for_states(self) -> None:
        """States that only unanswered backups hold come back."""
        if self.config["host"] and not self._states_left():
            self._flush()
            for copy in self.plain.copies.all:
                if not copy.done:
                    self.world.copies.finish(copy.number)
            self.cache.check_hicache_events()

    def _take(self, request: Any, until: int) -> bool:
        """Evicts what is lacking and takes the slots, as alloc_for_extend does."""
        lacks = lacking(self.plain, raw(request), until)
        if lacks > 0:
            self.calls.common.evict_from_tree_cache(self.cache, lacks)
            if available(self.plain) < lacks:
                return False
        taken = self.take_slots(self.world, request, until)
        need(taken, "CONTRACT", f"{lacks} slots are available and cannot be taken")
        return True

    def decode(self, job: Job, tokens: Sequence[int]) -> bool:
        request, plain = self.running[job.id], raw(self.running[job.id])
        start = plain.kv.kv_committed_len
        lacks = lacking(self.plain, plain, start + len(tokens))
        if lacks > 0:
            self.calls.common.evict_from_tree_cache(self.cache, lacks)
            if available(self.plain) < lacks:
                return False
        for at, token in enumerate(tokens, start):
            self.generate(request, token)
            if "swa" in self.plain.pools and plain.decode_batch_idx >= 1:
                self.calls.slide(request)
            request.decode_batch_idx = plain.decode_batch_idx + 1
            self.take_slots(self.world, request, at + 1)
            self.compute(self.world, request, at, at + 1)
            self.track(self.world, request, at, at + 1, True)
        return True

    def finish(self, job: Job, keep: bool) -> None:
        request = self.running.pop(job.id)
        reason = self.recorder.make("reason", FINISH_LENGTH, len(job.tokens))
        request.finished_reason = reason
        self._release(request, keep and job.stage == "decoding")

    def abort(self, job: Job) -> None:
        self.finish(job, False)

    def retract(self, job: Job) -> None:
        self._release(self.running.pop(job.id), False)
        self.arrive(job)

    def _release(self, request: Any, keep: bool) -> None:
        if raw(request).kv.kv_allocated_len:
            self.calls.release(request, keep)
            return
        self.calls.forget(request)  # it was refused its first slots, and has a row without any
        if "mamba" in self.plain.pools:
            self.rows.free_mamba_cache(request)
        self.rows.free(request)

    # -- the cache

    def evict(self, pool: str, slots: int) -> int:
        if pool not in self.plain.pools:
            return 0
        tier, _, part = pool.rpartition(" ")
        if tier:
            return int(self.cache.evict_host(slots, NAMES[part]))
        asked = {"full": "num_tokens", "swa": "swa_num_tokens", "mamba": "mamba_num"}[part]
        told = {"full": "num_tokens", "swa": "swa_num_tokens", "mamba": "mamba_num"}[part]
        amounts = {"num_tokens": 0, "swa_num_tokens": 0, "mamba_num": 0, asked: slots}
        hosts = {name: one for name, one in self.plain.pools.items() if name.startswith("host")}
        before = {name: len(one.free_list) for name, one in hosts.items()}
        freed = raw(self.cache.evict(EvictParams(**amounts)))
        if self.config["policy"] != "write_back":  # which backs up, and may need room for it
            for name, one in hosts.items():
                lost = len(one.free_list) - before[name]
                text = (
                    f"evicting {slots} slots of {pool} on the device loses {lost} pages of {name}"
                )
                need(lost <= 0, "EVICT", text, f"loses {name}")
        return int(getattr(freed, f"{told}_evicted"))

    def cool(self) -> None:
        """With a store, every second time also from the host."""
        super().cool()
        self.cooled += 1
        for pool in self.can.evicts if self.storing and self.cooled % 2 else ():
            self.evict(pool, EVERYTHING)

    def let_go(self) -> None:
        self._start()
        for part in ("swa", "mamba"):
            if self.config["policy"] != "write_back" and f"host {part}" in self.plain.pools:
                self._let_go_of(part)
        for pool in self.can.evicts:
            self.evict(pool, EVERYTHING)

    def _let_go_of(self, part: str) -> None:
        """Copies of a part that are on host alone are in no node's way, so all of them can go."""
        self.evict(part, EVERYTHING)
        self.evict(f"host {part}", EVERYTHING)
        pool = self.plain.pools[f"host {part}"]
        held = pool.pages - len(pool.free_list)
        text = f"nothing runs, and {held} of {pool.pages} pages of host {part} cannot be evicted"
        need(not held, "EVICT", text, f"host {part} keeps")

    def reset(self) -> bool:
        if self.running or (self.storing and self.world.storage.busy()):
            return False
        self.cache.reset()
        self.rows.clear()
        self.world.allocator.clear()
        return True

    def turn_store(self) -> None:
        """Takes the store away, or attaches it again, as an administrator asks."""
        if not self.world.storage.busy():
            store = self.world.storage
            (store.detach if self.plain.cache.enable_storage else store.attach)()

    # -- transfers

    def transfers(self) -> Sequence[Transfer]:
        if not self.config["host"]:
            return ()
        self._flush()
        copies = self.plain.copies.all
        found = copies[self.told :]
        self.told = len(copies)
        moves = [one for one in found if not one.done]
        begun = [Backup(one, False) if one.to_host else Load(one, False) for one in moves]
        return begun + self._stored() if self.storing else begun

    def _stored(self) -> list[Transfer]:
        """What the threads of the store have to do since the last call."""
        found = list[Transfer]()
        for name in THREADS if self.plain.cache.enable_storage else ():
            queue = getattr(self.plain.cache.cache_controller, name)
            before, told = self.begun.get(name, (queue, 0))
            first = 1 + told * (before is queue)
            self.begun[name] = queue, queue.count
            found += [WORK[name]((name, one)) for one in range(first, queue.count + 1)]
        return found

    def _flush(self) -> None:
        """Submits queued backups."""
        if self.plain.cache.cache_controller.write_queue:
            self.cache.flush_pending_backups()

    def answer(self, transfer: Transfer, fault: str) -> None:
        if isinstance(transfer, Lookup | Fetch | Store):
            name, number = transfer.what
            self.world.storage.work(name, number, FAULTS[number % 3] if fault else "")
        elif not transfer.what.done:
            self.world.copies.finish(transfer.what.number)

    def poll(self) -> None:
        """Without a store, and with nothing queued or under way, check_hicache_events does
        nothing."""
        cache = self.plain.cache
        if self.config["host"]:
            queues = cache.cache_controller
            queued = queues.write_queue or queues.ack_write_queue or queues.ack_load_queue
            if self.storing or queued or self.plain.busy():
                self.cache.check_hicache_events()

    # -- the state

    def pools(self) -> Sequence[PoolState]:
        found: Sequence[PoolState] = self.recorder.pure(
            pools_of, self.world, [*self.running.values(), *self.waiting.values()]
        )
        return found

    def free(self) -> dict[str, int]:
        return {name: pool.available_size() for name, pool in self.plain.pools.items()}

    def mark(self) -> Any:
        return None if self.storing else mark_of(self.plain, list(map(raw, self.running.values())))

    def laws(self) -> None:
        changes = sum(pool.changes for pool in self.plain.pools.values())
        if changes != self.judged:
            self.judged = changes
            self.recorder.check(judge_reads, self.world, list(self.running.values()))
        if self.mirror is not None:
            self.mirror.judge(self.world)

    def close(self) -> None:
        if self.storing:
            raw(self.world.storage).close()

    def self_check(self) -> None:
        cache = self.plain.cache
        if not cache.ongoing_load_back or self.config["policy"] == "write_back":
            cache.sanity_check()


PEER = SGLang
