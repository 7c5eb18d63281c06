"""A worker of vLLM without a model: it follows what each step reads and writes, row by row, as a
model's kernels would, samples tokens that depend on the prompt alone, and moves contents between
device and host when it is told to. And the laws of both tiers.

The worker half of a connector is the engine's own; beneath it, copies are done here, and end when
`end` is called. Scripts copy definitions from here.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Sequence
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any, NamedTuple

from vllm.distributed.kv_transfer.kv_connector.utils import KVOutputAggregator
from vllm.v1.kv_offload.base import TransferResult
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.worker import kv_connector_model_runner_mixin as runner

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_engine import Group

WORDS = 4  # different tokens that are sampled
UNWRITTEN, MOVING, DRAFTED, TORN, BROKEN = -1, -3, -4, -5, -6  # contents that no prefix has
Content = tuple[int, tuple[int, ...]]  # the group that wrote a block, and its rows
Pairs = list[tuple[int, int, int]]  # device block, group, host chunk


class Work(NamedTuple):
    """What one request computes in one step: positions `start` to `end` of its tokens, and drafted
    tokens behind. tables: its blocks, by group. kept: drafted tokens that turn out to be right.
    ahead: rows behind that a drafter may write. fresh: the request was just admitted."""

    request: Any
    tables: Sequence[Sequence[int]]
    start: int
    end: int
    drafts: Sequence[int] = ()
    kept: int = 0
    ahead: int = 0
    fresh: bool = False


class Memory:
    """The blocks of a worker. Every row of a block has a digest of the whole prefix that it was
    computed from: a model that reads another one gives a wrong answer."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.rows: dict[int, list[int]] = {}
        self.owner: dict[int, int] = {}  # by block, the group that wrote it last
        self.rotten: set[int] = set()  # blocks with rows of a load that failed, or computed from it
        self.means: dict[bytes, tuple[int, int]] = {}  # by block hash: the prefix's digest, length
        self._known: dict[tuple[Any, int], int] = {}
        self._chains: dict[str, list[int]] = {}
        self._column: dict[tuple[str, int], tuple[int, int]] = {}

    # -- prefixes

    def chain(self, request: Any, until: int, drafts: Sequence[int] = ()) -> list[int]:
        """The digests of the first `until` tokens of a request, and of drafted tokens behind."""
        chain = self._chains.setdefault(request.request_id, [])
        if len(chain) < until:
            self._extend(chain, request._all_token_ids[len(chain) : until], request)
        if not drafts:
            return chain
        longer = chain[:until]
        self._extend(longer, drafts, request)
        return longer

    def _extend(self, chain: list[int], tokens: Sequence[int], request: Any) -> None:
        known = self._known
        last: Any = chain[-1] if chain else request.cache_salt
        for token in tokens:
            last = known.setdefault((last, token), len(known) + 1)
            chain.append(last)

    def learn(self, request: Any, page: int) -> None:
        """Notes what the block hashes of a request stand for. page: tokens of a block hash."""
        chain = self.chain(request, len(request._all_token_ids))
        hashes, means = request.block_hashes, self.means
        for at in range(len(hashes) - 1, -1, -1):
            if hashes[at] in means:
                break
            means[hashes[at]] = chain[(at + 1) * page - 1], (at + 1) * page

    def forget(self, name: str) -> None:
        """The request is gone."""
        self._chains.pop(name, None)
        for at in range(len(self.groups)):
            self._column.pop((name, at), None)

    # -- a step

    def step(self, works: Sequence[Work]) -> None:
        """A step of the model. Raises Broken if it reads what is not its own prefix."""
        pairs = [(work, self.chain(work.request, work.end, work.drafts)) for work in works]
        for at, group in enumerate(self.groups):
            if group.kind in ("align", "all"):
                self._states(at, group, pairs)
                continue
            for work, chain in pairs:
                self._write(at, group.block, work, chain)
            for work, chain in pairs:
                self._read(at, group, work, chain)

    def spoils(self, work: Work, bad: Container[int]) -> bool:
        """Whether a request reads what could not be loaded in this step; then it computes what no
        prefix has. Only models of one group have such loads."""
        [table], [group] = work.tables, self.groups
        size = group.block
        first = group.first(work.start) // size
        if not any(block in bad for block in table[first : -(-work.start // size)]):
            return False
        for place in range(work.start, work.end):
            block = table[place // size]
            rows = list(self.content(block)[1] or (UNWRITTEN,) * size)
            rows[place % size] = BROKEN
            self.restore(block, 0, rows)
            self.rotten.add(block)
        return True

    def copy(self, source: int, target: int) -> None:
        """Copies a whole block."""
        self.restore(target, self.owner.get(source, -1), self.rows.get(source, ()))

    def _write(self, at: int, size: int, work: Work, chain: list[int]) -> None:
        table, rows = work.tables[at], self.rows
        end = work.end + len(work.drafts)
        place = work.start
        while place < end:
            first = place // size * size
            stop = min(end, first + size)
            block = self._block(at, work, place // size, place)
            old = rows.get(block)
            if old is None or len(old) != size or self.owner.get(block) != at:
                rows[block] = old = [UNWRITTEN] * size
                self.owner[block] = at
            old[place - first : stop - first] = chain[place:stop]
            if self.rotten and BROKEN not in old:
                self.rotten.discard(block)
            place = stop
        for place in range(end, min(end + work.ahead, len(table) * size)):
            block = table[place // size]
            if block and self.owner.get(block) == at and len(rows[block]) == size:
                rows[block][place % size] = DRAFTED

    def _block(self, at: int, work: Work, index: int, place: int) -> int:
        """The block of a request that it writes. place: of a token, for what is said."""
        table = work.tables[at]
        block = table[index] if index < len(table) else 0
        if not block:
            text = f"request {work.request.request_id} group {at} has no block for position {place}"
            need(False, "BYTES", text, "no")
        return block

    def _read(self, at: int, group: Group, work: Work, chain: list[int]) -> None:
        size, table, rows, owner = group.block, work.tables[at], self.rows, self.owner
        place = group.first(work.start)
        while place < work.start:
            index = place // size
            first = index * size
            stop = min(work.start, first + size)
            block = table[index] if index < len(table) else 0
            if owner.get(block) != at or (
                rows[block][place - first : stop - first] != chain[place:stop]
            ):
                self._wrong(at, work, place, block)
            place = stop

    def _wrong(self, at: int, work: Work, place: int, block: int) -> None:
        holds = "the null block" if not block else f"block {block}, which holds another prefix"
        if block and self.owner.get(block) is None:
            holds = f"block {block}, which nobody wrote"
        text = f"request {work.request.request_id} group {at} reads position {place} from {holds}"
        need(not self.groups[at].validated, "BYTES", text, f"read {self.groups[at].kind}")

    # -- states of Mamba layers

    def _states(self, at: int, group: Group, pairs: Sequence[tuple[Work, list[int]]]) -> None:
        """Each layer first brings the last state into the block that it will write, then computes
        all requests, then keeps the states at block boundaries (v1/worker/mamba_utils.py)."""
        for work, chain in pairs:
            index = (work.start - 1) // group.block
            if group.kind == "align":
                index = self._bring(at, group.block, work)
            table = work.tables[at]
            block = table[index] if work.start and index < len(table) else 0
            right = self.owner.get(block) == at and self.rows[block] == [chain[work.start - 1]]
            if work.start and not (block and right):
                self._wrong(at, work, work.start - 1, block)
        for work, chain in pairs:
            self._computed(at, group, work, chain)

    def _bring(self, at: int, size: int, work: Work) -> int:
        """Returns the index of the block that has the last state."""
        key = work.request.request_id, at
        column, bias = self._column.get(key, (-1, 0))
        if work.fresh:
            column, bias = (work.start - 1) // size if work.start else -1, 0
        new = -(-(work.end + len(work.drafts)) // size) - 1
        if 0 <= column != new:
            self.copy(work.tables[at][column + bias], self._block(at, work, new, work.start))
            bias = 0
        self._column[key] = new, bias
        return new + bias

    def _computed(self, at: int, group: Group, work: Work, chain: list[int]) -> None:
        size, table = group.block, work.tables[at]
        last = work.end + len(work.drafts)
        if group.kind == "all":
            for index in range(work.start // size, -(-last // size)):
                self._put(at, work, index, chain[min(last, (index + 1) * size) - 1])
            return
        key = work.request.request_id, at
        column, _ = self._column[key]
        if not work.drafts:
            self._put(at, work, column, chain[last - 1])
            self._column[key] = column, 0
            return
        for place in range(work.end - 1, last):
            self._put(at, work, column + place - work.end + 1, chain[place])
        new = work.end + work.kept
        bias, number = work.kept, new // size * size
        if number >= work.end:
            target = number // size - 1
            if target != column or number > work.end:
                block = self._block(at, work, target, number - 1)
                self.copy(table[column + number - work.end], block)
            bias = 0 if target == column else bias
        self._column[key] = column, bias

    def _put(self, at: int, work: Work, index: int, digest: int) -> None:
        self.restore(self._block(at, work, index, work.start), at, [digest])

    # -- copies from and to elsewhere

    def content(self, block: int) -> Content:
        """The group that wrote a block, and its rows."""
        return self.owner.get(block, -1), tuple(self.rows.get(block, ()))

    def restore(self, block: int, owner: int, rows: Sequence[int]) -> None:
        self.owner[block], self.rows[block] = owner, list(rows)

    def fill(self, block: int, group: int, value: int) -> None:
        """Every row of a block becomes this."""
        states = self.groups[group].kind in ("align", "all")
        self.restore(block, group, [value] * (1 if states else self.groups[group].block))

    def is_loading(self, block: int, group: int) -> None:
        """Raises Broken unless a block is as `fill` left it when its load began."""
        same = self.owner.get(block) == group and set(self.rows[block]) == {MOVING}
        text = f"block {block} was overwritten while a load wrote it"
        need(same, "PIN-IO", text, "load target")


def torn(before: Content, after: Content) -> Content:
    """What a copy has of a block that changed meanwhile. Rows that were not yet written when it
    began may be."""
    if before == after:
        return after
    if before[0] != after[0] or len(before[1]) != len(after[1]):
        return after[0], (TORN,) * len(after[1])
    pairs = zip(before[1], after[1], strict=True)
    return after[0], tuple(new if old == new else TORN for old, new in pairs)


# -- laws of the device


def audit(scheduler: Any, names: Container[str], kept: Sequence[int] = ()) -> None:
    """Raises Broken unless every block has the holders that it counts, and what nothing holds is
    free. names: of requests that have blocks. kept: blocks that a copy holds beside them."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    # of requests that ended while a step was under way
    counted = [block for _, blocks in scheduler.deferred_frees for block in blocks]
    for single in manager.coordinator.single_type_managers:
        counted += [block for pair in single._pending_cow_copies for block in pair]
        for name, blocks in single.req_to_blocks.items():
            text = f"request {name} is gone and still has {len(blocks)} blocks"
            need(not blocks or name in names, "OWN", text)
            counted += blocks
    holders = Counter([*kept, *(block.block_id for block in counted)])
    for block in pool.blocks:
        count = holders[block.block_id]
        if block.ref_cnt != count and not block.is_null:
            text = f"block {block.block_id} counts {block.ref_cnt} holders and has {count}"
            need(False, "LOCK-BAL", text, "too many" if block.ref_cnt > count else "too few")
    free = {number for number in range(1, len(pool.blocks)) if not holders[number]}
    listed = [block.block_id for block in pool.free_block_queue.get_all_free_blocks()]
    count = pool.get_num_free_blocks()
    text = f"{count} counted as free, {len(listed)} in the queue, {len(free)} that nothing holds"
    need(count == len(listed) and free == set(listed), "POOL-SUM", text)


def audit_index(manager: Any, memory: Memory) -> None:
    """Raises Broken unless every block that a hash leads to holds the prefix of that hash. An index
    is judged only after the step that it was filled for."""
    pool = manager.block_pool
    hashed = 0
    for key, value in pool.cached_block_hash_to_block._cache.items():
        for block in value.values() if type(value) is dict else (value,):
            hashed += 1
            _audit_block(memory, block, key)
            if block.block_hash is None:
                text = f"the index leads to block {block.block_id}, which has no hash"
                need(False, "OWN", text, "hash")
    own = sum(block.block_hash is not None for block in pool.blocks)
    own += sum(map(len, pool.cached_block_hashes_by_block.values()))
    if hashed != own:
        text = f"{own} hashes on blocks, {hashed} of them lead to their block"
        need(False, "OWN", text, "index")
    for number in memory.rotten:  # to be computed again
        block = pool.blocks[number]
        if block.block_hash is not None and not block.ref_cnt:
            text = f"block {number} is cached and free, and was never loaded nor computed"
            need(False, "BYTES", text, "index failed load")


def _audit_block(memory: Memory, block: Any, key: bytes) -> None:
    group, number = key[-1], block.block_id
    if number in memory.rotten or not memory.groups[group].validated:
        return
    digest, length = memory.means[key[-36:-4]]
    rows = memory.rows.get(number)
    at = (length - 1) % memory.groups[group].block
    if rows is None or memory.owner[number] != group or rows[at if at < len(rows) else 0] != digest:
        text = f"group {group} block {number} is cached for {length} tokens, and holds something"
        need(False, "BYTES", f"{text} else", f"index {memory.groups[group].kind}")


# -- steps


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
    """config: as `engine_config` makes it. sides: the worker side of a connector, on each rank."""

    def __init__(self, groups: Sequence[Group], config: Any, sides: Sequence[Any] = ()) -> None:
        self.memory = Memory(groups)
        self.steps = self.idle = 0  # ever, and since one that computed
        self.known: dict[str, Known] = {}
        self.salts: dict[str, str] = {}
        self.sides = sides
        self.aggregator = KVOutputAggregator(len(sides))
        self.drafts = config.num_speculative_tokens
        self.ahead = bool(config.scheduler_config.async_scheduling)
        self.eagle = bool(config.num_lookahead_tokens)
        self.guesses: Any = None  # the drafts for the next step

    def run(self, step: Any) -> Any:
        """Carries out what the scheduler put into one step, in the order of gpu_model_runner.py."""
        self.steps += 1
        self.idle = 0 if step.total_num_scheduled_tokens else self.idle + 1
        for side in self.sides:
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
        with ExitStack() as stack:
            moved = [stack.enter_context(self._moves(side, step)) for side in self.sides]
            tokens = self._compute([self._work(name, step) for name in step.num_scheduled_tokens])
        if self.drafts:  # it saves after them
            for side in self.sides:
                side.wait_for_save()
                side.clear_connector_metadata()
        outputs: Any = [SimpleNamespace(kv_connector_output=output) for output in moved]
        names = list(step.num_scheduled_tokens)
        self.guesses = DraftTokenIds(names, [self.known[name].drafts for name in names])
        return ModelRunnerOutput(
            req_ids=names,
            req_id_to_index={name: at for at, name in enumerate(names)},
            sampled_token_ids=tokens,
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
            kv_connector_output=self.aggregator.aggregate(outputs).kv_connector_output
            if outputs
            else None,
        )

    def _moves(self, side: Any, step: Any) -> Any:
        """What vLLM does with a connector around a step."""
        runner.get_kv_transfer_group = lambda: side
        return runner.KVConnectorModelRunnerMixin._get_kv_connector_output(step, bool(self.drafts))

    def _compute(self, works: Sequence[Work]) -> list[list[int]]:
        bad = [block for side in self.sides for block in vars(side).get("bad", ())]
        spoiled = [work for work in works if bad and self.memory.spoils(work, bad)]
        self.memory.step([work for work in works if work not in spoiled])
        return [self._spoil(work) if work in spoiled else self._sample(work) for work in works]

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


class CopyHandler:
    """Copies blocks between device and host. It takes the place of vLLM's own handlers, which need
    a GPU (v1/kv_offload/cpu/gpu_worker.py). host: by chunk, the content of a block. jobs: whether
    it is a store, its pairs, and what the sources had when it began."""

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self.host: dict[int, Content] = defaultdict(lambda: (-1, ()))
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
        self.done.append(TransferResult(number, success=True))


def host_chunks(scheduler: Any) -> Any:
    """The manager of the host tier."""
    return scheduler.connector.connector_scheduler.manager


def chunks_of(manager: Any) -> dict[bytes, Any]:
    """The chunks of the host tier by key: `OffloadKey`, a block hash and a group."""
    tables = [table for table in vars(manager._policy).values() if hasattr(table, "items")]
    pairs = (pair for table in tables for pair in table.items())
    return {key: chunk for key, chunk in pairs if hasattr(chunk, "ref_cnt")}


def audit_host(manager: Any, host: dict[int, Content], memory: Memory) -> None:
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
