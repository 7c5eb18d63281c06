"""A worker of vLLM without a model: it follows what each step reads and writes, samples tokens that
depend on the prompt alone, and moves contents between device and host when it is told to.

The worker half of a connector is the engine's own; beneath it, copies are done here, and end when
`end` is called. Scripts copy definitions from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_engine import Group
from invariants.fuzz.targets._vllm_memory import MOVING, TORN, Content, Memory, Work, torn

WORDS = 4  # different tokens that are sampled
Pairs = list[tuple[int, int, int]]  # device block, group, host chunk


def sampled(tokens: Sequence[int]) -> int:
    """The model: the token that follows a prefix."""
    return (7 * sum(tokens[-5:]) + 3 * len(tokens)) % WORDS + 1


class Known:
    """What the worker knows of a request. `_all_token_ids` and the others are named as in the
    engine's own requests. spoiled: its last step read what could not be loaded."""

    def __init__(self, name: str, tokens: Sequence[int], salt: str | None, start: int) -> None:
        self.request_id, self.cache_salt = name, salt
        self._all_token_ids = list(tokens)
        self.tables: list[list[int]] = []
        self.computed = start
        self.drafts: list[int] = []
        self.fresh, self.spoiled = True, False


class Worker:
    """config: as `engine_config` makes it. side: the worker side of a connector, or None."""

    def __init__(self, groups: Sequence[Group], config: Any, side: Any = None) -> None:
        self.memory = Memory(groups)
        self.steps = self.idle = 0  # ever, and since one that computed
        self.known: dict[str, Known] = {}
        self.salts: dict[str, str] = {}
        self.side = side
        self.drafts = config.num_speculative_tokens
        self.ahead = bool(config.scheduler_config.async_scheduling)
        self.eagle = bool(config.num_lookahead_tokens)
        self.guesses: Any = None  # the drafts for the next step

    def run(self, step: Any) -> Any:
        """Carries out what the scheduler put into one step, in the order of gpu_model_runner.py."""
        side = self.side
        self.steps += 1
        self.idle = 0 if step.total_num_scheduled_tokens else self.idle + 1
        if side is not None:
            side.handle_preemptions(step.kv_connector_metadata)
        for name in step.finished_req_ids:
            self.known.pop(name, None)
            self.memory.forget(name)
        self._hear(step)
        for block in step.new_block_ids_to_zero or ():
            self.memory.rows.pop(block, None)
            self.memory.owner.pop(block, None)
        for source, target in step.kv_cache_block_copies or ():
            self.memory.copy(source, target)
        if side is not None:
            side.bind_connector_metadata(step.kv_connector_metadata)
            if step.has_sync_kv_loads:
                side.start_load_kv(None)
        works = [self._work(name, step) for name in step.num_scheduled_tokens]
        bad = vars(side).get("bad", ()) if side is not None else ()
        spoiled = [work for work in works if bad and self.memory.spoils(work, bad)]
        self.memory.step([work for work in works if work not in spoiled])
        tokens = [self._spoil(work) if work in spoiled else self._sample(work) for work in works]
        if side is not None and not step.has_sync_kv_loads:
            side.start_load_kv(None)
        names = list(step.num_scheduled_tokens)
        self.guesses = DraftTokenIds(names, [self.known[name].drafts for name in names])
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self._moved(step) if side is not None else None,
        )

    def _hear(self, step: Any) -> None:
        for new in step.scheduled_new_reqs:
            tokens, name = new.prefill_token_ids or new.prompt_token_ids, new.req_id
            known = Known(name, tokens, self.salts.get(name), new.num_computed_tokens)
            known.tables = [list(blocks) for blocks in new.block_ids]
            self.known[name] = known
        cached = step.scheduled_cached_reqs
        for at, name in enumerate(cached.req_ids):
            known, blocks = self.known[name], cached.new_block_ids[at]
            computed = cached.num_computed_tokens[at]
            if name in cached.resumed_req_ids:
                known.tables = [list(table) for table in blocks]
                known.computed, known.fresh, known.drafts = computed, True, []
                known._all_token_ids = list(cached.all_token_ids.get(name, known._all_token_ids))
            elif blocks is not None:
                for table, new_blocks in zip(known.tables, blocks, strict=True):
                    table.extend(new_blocks)
            if known.spoiled:
                known.computed, known.spoiled = computed, False
            wrong = known.computed != computed and (not self.ahead or known.computed > computed)
            text = f"request {name} has {known.computed} tokens computed, the scheduler says"
            need(not wrong, "CONTRACT", f"{text} {computed}", "computed")

    def _work(self, name: str, step: Any) -> Work:
        known = self.known[name]
        count = step.num_scheduled_tokens[name]
        drafts = list(step.scheduled_spec_decode_tokens.get(name, ()))
        start, end = known.computed, known.computed + count - len(drafts)
        tokens = known._all_token_ids
        text = f"request {name} of {len(tokens)} tokens: {start} to {end} are to be computed"
        need(start < end <= len(tokens), "CONTRACT", text, "scheduled")
        if self.ahead and drafts:
            mine = known.drafts[: len(drafts)]
            drafts = mine + [-1] * (len(drafts) - len(mine))
        kept = 0
        if end == len(tokens):
            so_far = list(tokens)
            while kept < len(drafts) and drafts[kept] == sampled(so_far):
                so_far.append(drafts[kept])
                kept += 1
        fresh, known.fresh = known.fresh, False
        rows = [max(0, draft) for draft in drafts]
        tables = [list(table) for table in known.tables]
        ahead = self.drafts if self.eagle else 0
        return Work(known, tables, start, end, rows, kept, ahead, fresh)

    def _sample(self, work: Work) -> list[int]:
        """The tokens that follow, if the step came to the end of what is known."""
        known = work.request
        known.computed = work.end + work.kept
        known.drafts = []
        tokens = known._all_token_ids
        if work.end < len(tokens):
            return []
        new: list[int] = []
        for _ in range(work.kept + 1):
            new.append(sampled(tokens))
            tokens.append(new[-1])
        guess = list(tokens)
        for at in range(self.drafts):
            right = sampled(guess)
            guess.append(right if (len(tokens) + at) % 3 else right % WORDS + 1)
        known.drafts = guess[len(tokens) :]
        return new

    def _spoil(self, work: Work) -> list[int]:
        """What a model says that read what was not loaded. The scheduler must not take it."""
        work.request.spoiled, work.request.drafts = True, []
        return [WORDS + 1] if work.end >= len(work.request._all_token_ids) else []

    def _moved(self, step: Any) -> KVConnectorOutput:
        if hasattr(self.side, "moved"):  # of several ranks
            return self.side.moved(step.finished_req_ids)
        self.side.wait_for_save()
        sent, received = self.side.get_finished(step.finished_req_ids)
        output = KVConnectorOutput(
            finished_sending=sent or None,
            finished_recving=received or None,
            kv_connector_worker_meta=self.side.build_connector_worker_meta(),
            invalid_block_ids=self.side.get_block_ids_with_load_errors(),
        )
        if hasattr(self.side, "take_lost"):
            output.failed_recving = self.side.take_lost() or None
        self.side.clear_connector_metadata()
        return output


def audit_progress(worker: Worker, most: int) -> None:
    """Raises Broken after so many steps that compute nothing."""
    text = f"in {worker.idle} steps nothing was scheduled and nothing was under way"
    need(worker.idle < most, "PROGRESS", text, "nothing runs")


def audit_ended(worker: Worker, scheduler: Any, most: int) -> None:
    """Raises Broken if a request has not ended after so many steps."""
    left = ", ".join(f"request {name}" for name in scheduler.requests)
    text = f"with every transfer answered, {left} never ends"
    need(not left or worker.steps < most, "PROGRESS", text)


# -- between device and host


class Host(dict[int, Content]):
    """Host memory in chunks, each of a block: the group that wrote it, and its rows."""

    def __missing__(self, chunk: int) -> Content:
        return -1, ()


class CopyHandler:
    """Copies blocks between device and host. It takes the place of vLLM's own handlers, which need
    a GPU (v1/kv_offload/cpu/gpu_worker.py). jobs: whether it is a store, its pairs, and what the
    sources had when it began."""

    def __init__(self, memory: Memory, host: Host) -> None:
        self.memory, self.host = memory, host
        self.jobs: dict[int, tuple[bool, Pairs, list[Content]]] = {}
        self.began: list[tuple[str, int]] = []
        self.done: list[Any] = []

    # -- what vLLM calls

    def submit_store(self, job: int, source: Any, target: Any) -> bool:
        return self._begin(job, True, self._pairs(source, target))

    def submit_load(self, job: int, source: Any, target: Any) -> bool:
        return self._begin(job, False, self._pairs(target, source))

    def get_finished(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def wait(self, jobs: Any) -> None:
        for job in sorted(jobs):
            self.end(job)

    def shutdown(self) -> None:
        """Nothing to end."""

    # -- copies

    def _pairs(self, device: Any, host: Any) -> Pairs:
        blocks = [int(block) for block in device.block_ids]
        chunks = [int(chunk) for chunk in host.chunk_ids]
        groups = [group for group, size in enumerate(device.group_sizes) for _ in range(size)]
        text = f"a copy of {len(groups)} blocks names {len(blocks)} blocks, {len(chunks)} chunks"
        need(len(groups) == len(blocks) == len(chunks), "CONTRACT", text, "chunks")
        return list(zip(blocks, groups, chunks, strict=True))

    def _begin(self, number: int, store: bool, pairs: Pairs) -> bool:
        seen = []
        for block, group, chunk in pairs:
            seen.append(self.memory.content(block) if store else self.host[chunk])
            if store:
                self.host[chunk] = MOVING, ()
                continue
            text = f"a load reads chunk {chunk} of the host, which is still being written"
            need(seen[-1][0] != MOVING, "READ-AFTER-ARRIVE", text)
            self.memory.fill(block, group, MOVING)
        self.jobs[number] = store, pairs, seen
        self.began.append(("Backup" if store else "Load", number))
        return True

    def end(self, number: int, fails: bool = False) -> None:
        """The copy is done. None fails: the engine asserts that."""
        if number not in self.jobs:
            return
        memory, host = self.memory, self.host
        store, pairs, contents = self.jobs.pop(number)
        for (block, group, chunk), seen in zip(pairs, contents, strict=True):
            if store:
                text = f"chunk {chunk} of the host was given to another while a store wrote it"
                need(host[chunk][0] == MOVING, "PIN-IO", text, "store target")
                host[chunk] = torn(seen, memory.content(block))
                continue
            text = f"chunk {chunk} of the host was overwritten while a load read it"
            need(host[chunk] == seen, "PIN-IO", text, "load source")
            memory.is_loading(block, group)
            memory.restore(block, *seen)
        result = SimpleNamespace(job_id=number, success=True, transfer_size=None)
        result.transfer_time = result.transfer_type = None
        self.done.append(result)


def host_chunks(scheduler: Any) -> Any:
    """The manager of the host tier."""
    return scheduler.connector.connector_scheduler.manager


def chunks_of(manager: Any) -> dict[bytes, Any]:
    """The chunks of the host tier by key: `OffloadKey`, a block hash and a group."""
    tables = [table for table in vars(manager._policy).values() if hasattr(table, "items")]
    pairs = (pair for table in tables for pair in table.items())
    return {key: chunk for key, chunk in pairs if hasattr(chunk, "ref_cnt")}


def audit_host(manager: Any, host: Host, memory: Memory) -> None:
    """Raises Broken unless every chunk on host has one key and holds what that stands for."""
    chunks = chunks_of(manager)
    numbers = [chunk.chunk_id for chunk in chunks.values()]
    free = list(manager._free_list)
    once = len(set(numbers) | set(free)) == len(numbers) + len(free)
    need(once, "OWN", "a chunk of the host has two keys, or is free and has one", "host")
    made = manager._num_allocated_chunks
    text = f"{made} chunks of the host were taken, {len(numbers)} are cached, {len(free)} free"
    need(made == len(numbers) + len(free), "POOL-SUM", text, "host")
    for key, chunk in chunks.items():
        means = memory.means.get(key[-36:-4])
        group = memory.groups[key[-1]]
        if chunk.ref_cnt < 0 or means is None or not group.validated:
            continue
        owner, rows = host[chunk.chunk_id]
        row = (means[1] - 1) % group.block if len(rows) == group.block else 0
        if owner != key[-1] or not rows or rows[row] != means[0]:
            holds = "is still being written" if owner == MOVING else "holds something else"
            if owner == key[-1] and rows and rows[row] == TORN:
                holds = "holds a block that was overwritten while a store read it"
            text = f"chunk {chunk.chunk_id} of the host is cached for {means[1]} tokens"
            text += f" of group {key[-1]}, and {holds}"
            need(False, "BYTES", text, f"host {group.kind}")


def audit_released(manager: Any) -> None:
    """Raises Broken if a chunk on host is held or pending while nothing is under way."""
    for chunk in chunks_of(manager).values():
        if chunk.ref_cnt:
            state = "pending" if chunk.ref_cnt < 0 else "held"
            text = f"chunk {chunk.chunk_id} of the host is {state}, and nothing is under way"
            need(False, "QUIESCENCE", text, f"host {state}")
