"""A worker of vLLM without a model: it follows what each step reads and writes, samples tokens that
depend on the prompt alone, and moves contents between device and host when it is told to.

The worker half of the offloading connector is the engine's own; beneath it, copies are done here,
and end when `end` is called. Scripts copy definitions from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from vllm.v1.outputs import DraftTokenIds, KVConnectorOutput, ModelRunnerOutput

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_doubles import Group, Memory, Work

MOVING, TORN = -3, -5
Content = tuple[int, tuple[int, ...]]  # the group that wrote a block, and its rows
WORDS = 4  # different tokens that are sampled


def sampled(tokens: Sequence[int]) -> int:
    """The model: the token that follows a prefix."""
    return (7 * sum(tokens[-5:]) + 3 * len(tokens)) % WORDS + 1


class Known:
    """What the worker knows of a request. `_all_token_ids` and the others are named as in the
    engine's own requests."""

    def __init__(self, name: str, tokens: Sequence[int], salt: str | None) -> None:
        self.request_id, self.cache_salt = name, salt
        self._all_token_ids = list(tokens)
        self.tables: list[list[int]] = []
        self.computed = 0
        self.drafts: list[int] = []
        self.fresh = True
        self.spoiled = False  # its last step read what could not be loaded


class Worker:
    """config: as `engine_config` makes it. half: the worker half of a connector, or None.
    zeroes_first: new blocks are zeroed before stores that still read them are waited for, as
    gpu/model_runner.py does."""

    zeroes_first = False

    def __init__(self, groups: Sequence[Group], config: Any, half: Any = None) -> None:
        self.memory = Memory(groups)
        self.steps = self.idle = 0  # ever, and since one that computed
        self.known: dict[str, Known] = {}
        self.salts: dict[str, str] = {}
        self.half = half
        self.drafts = config.num_speculative_tokens
        self.ahead = bool(config.scheduler_config.async_scheduling)
        self.eagle = bool(config.num_lookahead_tokens)
        self.guesses: tuple[list[str], list[list[int]]] = ([], [])

    def run(self, step: Any) -> Any:
        """Carries out what the scheduler put into one step, in the order of gpu_model_runner.py."""
        half = self.half
        self.steps += 1
        self.idle = 0 if step.total_num_scheduled_tokens else self.idle + 1
        if half is not None and not self.zeroes_first:
            half.handle_preemptions(step.kv_connector_metadata)
        for name in step.finished_req_ids:
            self.known.pop(name, None)
            self.memory.forget(name)
        self._hear(step)
        for block in step.new_block_ids_to_zero or ():
            self.memory.rows.pop(block, None)
            self.memory.owner.pop(block, None)
        for source, target in step.kv_cache_block_copies or ():
            self.memory.copy(source, target)
        if half is not None:
            if self.zeroes_first:
                half.handle_preemptions(step.kv_connector_metadata)
            half.bind_connector_metadata(step.kv_connector_metadata)
        late = not step.has_sync_kv_loads
        if half is not None and not late:
            half.start_load_kv(None)
        works = [self._work(name, step) for name in step.num_scheduled_tokens]
        bad = getattr(getattr(half, "mover", None), "bad", ())
        spoiled = [one for one in works if bad and self.memory.spoils(one, bad)]
        self.memory.step([one for one in works if one not in spoiled])
        said = [self._spoil(one) if one in spoiled else self._sample(one) for one in works]
        if half is not None and late:
            half.start_load_kv(None)
        moved = self._moved(step) if half is not None else None
        names = list(step.num_scheduled_tokens)
        self.guesses = names, [self.known[name].drafts for name in names]
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=said,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=moved,
        )

    def guessed(self) -> DraftTokenIds:
        """The drafts for the next step."""
        return DraftTokenIds(*self.guesses)

    def _hear(self, step: Any) -> None:
        for new in step.scheduled_new_reqs:
            tokens = new.prefill_token_ids or new.prompt_token_ids
            one = Known(new.req_id, tokens, self.salts.get(new.req_id))
            one.tables = [list(blocks) for blocks in new.block_ids]
            one.computed = new.num_computed_tokens
            self.known[new.req_id] = one
        cached = step.scheduled_cached_reqs
        for at, name in enumerate(cached.req_ids):
            one, blocks = self.known[name], cached.new_block_ids[at]
            if name in cached.resumed_req_ids:
                one.tables = [list(some) for some in blocks]
                one.computed, one.fresh = cached.num_computed_tokens[at], True
                one._all_token_ids = list(cached.all_token_ids.get(name, one._all_token_ids))
                one.drafts = []
            elif blocks is not None:
                for table, new_blocks in zip(one.tables, blocks, strict=True):
                    table.extend(new_blocks)
            told = cached.num_computed_tokens[at]
            one.computed = told if one.spoiled else one.computed
            one.spoiled = False
            wrong = one.computed != told and (not self.ahead or one.computed > told)
            text = f"request {name} has {one.computed} tokens computed, the scheduler says {told}"
            need(not wrong, "CONTRACT", text, "computed")

    def _work(self, name: str, step: Any) -> Work:
        one = self.known[name]
        count = step.num_scheduled_tokens[name]
        drafts = list(step.scheduled_spec_decode_tokens.get(name, ()))
        start, end = one.computed, one.computed + count - len(drafts)
        tokens = one._all_token_ids
        text = f"request {name} of {len(tokens)} tokens: {start} to {end} are to be computed"
        need(start < end <= len(tokens), "CONTRACT", text, "scheduled")
        if self.ahead and drafts:
            mine = one.drafts[: len(drafts)]
            drafts = mine + [-1] * (len(drafts) - len(mine))
        kept = 0
        if end == len(tokens):
            so_far = list(tokens)
            while kept < len(drafts) and drafts[kept] == sampled(so_far):
                so_far.append(drafts[kept])
                kept += 1
        fresh, one.fresh = one.fresh, False
        rows = [max(0, draft) for draft in drafts]
        tables = [list(table) for table in one.tables]
        ahead = self.drafts if self.eagle else 0
        return Work(one, tables, start, end, rows, kept, ahead, fresh)

    def _sample(self, work: Work) -> list[int]:
        """The tokens that follow, if the step came to the end of what is known."""
        one: Any = work.request
        one.computed = work.end + work.kept
        one.drafts = []
        tokens = one._all_token_ids
        if work.end < len(tokens):
            return []
        said: list[int] = []
        for _ in range(work.kept + 1):
            said.append(sampled(tokens))
            tokens.append(said[-1])
        guess = list(tokens)
        for at in range(self.drafts):
            right = sampled(guess)
            guess.append(right if (len(tokens) + at) % 3 else right % WORDS + 1)
        one.drafts = guess[len(tokens) :]
        return said

    def _spoil(self, work: Work) -> list[int]:
        """What a model says that read what was not loaded. The scheduler must not take it."""
        one: Any = work.request
        one.spoiled, one.drafts = True, []
        return [WORDS + 1] if work.end >= len(one._all_token_ids) else []

    def _moved(self, step: Any) -> KVConnectorOutput:
        if hasattr(self.half, "moved"):  # of several ranks
            return self.half.moved(step.finished_req_ids)
        self.half.wait_for_save()
        sent, received = self.half.get_finished(step.finished_req_ids)
        told = self.half.build_connector_worker_meta()
        more = {"invalid_block_ids": self.half.get_block_ids_with_load_errors()}
        if hasattr(self.half, "failed"):
            lost = self.half.failed()
            more |= {"failed_recving": lost} if lost else {}
        self.half.clear_connector_metadata()
        return KVConnectorOutput(
            finished_sending=sent or None,
            finished_recving=received or None,
            kv_connector_worker_meta=told,
            **more,
        )


def audit_progress(worker: Worker, most: int) -> None:
    """Raises Broken after so many steps that compute nothing."""
    text = f"in {worker.idle} steps nothing was scheduled and nothing was under way"
    need(worker.idle < most, "PROGRESS", text, "nothing runs")


def audit_ended(worker: Worker, scheduler: Any, most: int) -> None:
    """Raises Broken if a request has not ended after so many steps."""
    left = ", ".join(f"request {name}" for name in scheduler.requests)
    text = f"with every transfer answered, {left} never ends"
    need(not left or worker.steps < most, "PROGRESS", text)


class Job:
    """A copy under way. pairs: device block, group, host chunk, and place in the chunk. seen: what
    the source had when the copy began."""

    def __init__(self, store: bool, pairs: list[tuple[int, int, int, int]]) -> None:
        self.store, self.pairs = store, pairs
        self.seen: list[Any] = []


class Mover:
    """Copies blocks between device and host. It takes the place of vLLM's own handlers, which need
    a GPU (v1/kv_offload/cpu/gpu_worker.py). factor: device blocks of a host chunk."""

    def __init__(self, memory: Memory, host: Any, factor: int) -> None:
        self.memory, self.host, self.factor = memory, host, factor
        self.jobs: dict[int, Job] = {}
        self.began: list[tuple[int, bool]] = []
        self.done: list[Any] = []

    # -- what vLLM calls

    def submit_store(self, job: int, source: Any, target: Any) -> bool:
        return self._begin(job, Job(True, self._pairs(source, target)))

    def submit_load(self, job: int, source: Any, target: Any) -> bool:
        return self._begin(job, Job(False, self._pairs(target, source)))

    def get_finished(self) -> list[Any]:
        done, self.done = self.done, []
        return done

    def wait(self, jobs: Any) -> None:
        for job in sorted(jobs):
            self.end(job)

    def shutdown(self) -> None:
        """Nothing to end."""

    # -- copies

    def _pairs(self, device: Any, host: Any) -> list[tuple[int, int, int, int]]:
        blocks = [int(one) for one in device.block_ids]
        chunks = [int(one) for one in host.chunk_ids]
        pairs, block, chunk = [], 0, 0
        for group, (size, index) in enumerate(
            zip(device.group_sizes, device.block_indices, strict=True)
        ):
            skip = index % self.factor
            for at in range(size):
                place = skip + at
                pairs.append(
                    (
                        blocks[block + at],
                        group,
                        chunks[chunk + place // self.factor],
                        place % self.factor,
                    )
                )
            block += size
            chunk += -(-(skip + size) // self.factor) if size else 0
        need(
            block == len(blocks) and chunk == len(chunks),
            "CONTRACT",
            f"a copy of {len(blocks)} blocks names {len(chunks)} chunks, it needs {chunk}",
            "chunks",
        )
        return pairs

    def _begin(self, number: int, job: Job) -> bool:
        memory, host = self.memory, self.host
        for block, group, chunk, place in job.pairs:
            if job.store:
                job.seen.append(memory.content(block))
                host.put(chunk, place, MOVING, ())
                continue
            found = host.get(chunk, place)
            text = f"a load reads chunk {chunk} of the host, which is still being written"
            need(found[0] != MOVING, "READ-AFTER-ARRIVE", text)
            job.seen.append(found)
            memory.fill(block, group, MOVING)
        self.jobs[number] = job
        self.began.append((number, job.store))
        return True

    def end(self, number: int) -> None:
        """The copy is done."""
        job = self.jobs.pop(number, None)
        if job is None:
            return
        memory, host = self.memory, self.host
        for (block, group, chunk, place), seen in zip(job.pairs, job.seen, strict=True):
            if job.store:
                text = f"chunk {chunk} of the host was given to another while a store wrote it"
                need(host.get(chunk, place)[0] == MOVING, "PIN-IO", text, "store target")
                host.put(chunk, place, *torn(seen, memory.content(block)))
                continue
            text = f"chunk {chunk} of the host was overwritten while a load read it"
            need(host.get(chunk, place) == seen, "PIN-IO", text, "load source")
            text = f"block {block} was overwritten while a load wrote it"
            need(memory.is_filled(block, group, MOVING), "PIN-IO", text, "load target")
            memory.restore(block, *seen)
        self.done.append(
            SimpleNamespace(
                job_id=number,
                success=True,
                transfer_size=None,
                transfer_time=None,
                transfer_type=None,
            )
        )


def torn(before: Content, after: Content) -> Content:
    """What a copy has of a block that changed meanwhile. Rows that were not yet written when it
    began may be."""
    if before == after:
        return after
    if before[0] != after[0] or len(before[1]) != len(after[1]):
        return after[0], (TORN,) * len(after[1])
    pairs = zip(before[1], after[1], strict=True)
    return after[0], tuple(new if old == new else TORN for old, new in pairs)


class Host:
    """Host memory in chunks: for each place the group that wrote it, and its rows."""

    def __init__(self) -> None:
        self.chunks: dict[tuple[int, int], tuple[int, tuple[int, ...]]] = {}

    def get(self, chunk: int, place: int) -> tuple[int, tuple[int, ...]]:
        return self.chunks.get((chunk, place), (-1, ()))

    def put(self, chunk: int, place: int, owner: int, rows: tuple[int, ...]) -> None:
        self.chunks[chunk, place] = owner, rows


class MappedHost(Host):
    """The same in the memory that the engine shares with its tiers. view: of all chunks. places:
    blocks of a chunk."""

    def __init__(self, view: Any, places: int) -> None:
        super().__init__()
        self.words = np.asarray(view).view(np.int64)
        self.stride = self.words.shape[1] // places

    def get(self, chunk: int, place: int) -> tuple[int, tuple[int, ...]]:
        words = self.words[chunk, place * self.stride : (place + 1) * self.stride]
        count = int(words[1])
        return int(words[0]) - 1, tuple(words[2 : 2 + count].tolist())

    def put(self, chunk: int, place: int, owner: int, rows: tuple[int, ...]) -> None:
        words = self.words[chunk, place * self.stride : (place + 1) * self.stride]
        words[0], words[1] = owner + 1, len(rows)
        words[2 : 2 + len(rows)] = rows
