"""A stand-in for vLLM: its scheduler, pool of blocks and forward passes, as far as a connector sees
them (interface of 0.32).

What a pass writes at a position is a digest of the weights and of all tokens up to there, and every
pass first checks all that it would read. So a block that was loaded into the wrong place, saved too
late, reused under a copy, or kept over a reset gives a failed assertion at the next pass that reads
it. What is computed over rows of other weights, as vLLM does it where nobody has emptied its cache,
is marked: nobody may find it in another cache.
"""

import hashlib
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from hicache.vllm.groups import FULL, STATE, WINDOW, Groups, groups_of
from hicache.vllm.orders import Answer
from hicache.vllm.scheduler import ConnectorScheduler
from hicache.vllm.worker import ConnectorWorker

ROW = 8  # bytes of a position, or of a state
CLASSES = {FULL: "FullAttentionSpec", WINDOW: "SlidingWindowSpec", STATE: "MambaSpec"}


@cache
def digest_of(what: tuple[object, ...], tokens: tuple[int, ...]) -> bytes:
    """What a position has: of the weights and all tokens up to there."""
    text = repr((what, tokens)).encode(errors="surrogatepass")
    return hashlib.blake2b(text, digest_size=ROW).digest()


def spec(kind: str, block: int, window: int) -> Any:
    """A group's specification, of the class that vLLM calls it."""
    size = ROW * (1 if kind == STATE else block)
    named = type(CLASSES[kind], (SimpleNamespace,), {})
    more = {"sliding_window": window} if kind == WINDOW else {}
    return named(block_size=block, page_size_bytes=size, **more)


def cache_config(kinds: Sequence[tuple[str, int]], blocks: int, window: int) -> Any:
    """A `KVCacheConfig` with a group for each pair of kind and tokens of a block. Groups have one
    or two layers, in turn."""
    return SimpleNamespace(
        num_blocks=blocks,
        kv_cache_groups=[
            SimpleNamespace(
                layer_names=[f"{number}.{layer}" for layer in range(1 + number % 2)],
                kv_cache_spec=spec(kind, block, window),
            )
            for number, (kind, block) in enumerate(kinds)
        ],
    )


@dataclass(eq=False)
class Block:
    block_id: int
    ref_cnt: int = 0
    block_hash: Any = None
    block_hash_num_tokens: int | None = None
    is_null: bool = False
    mixed: bool = False  # has rows of several weights


@dataclass(frozen=True)
class Lora:
    """A `LoRARequest`."""

    lora_name: str
    lora_int_id: int
    lora_path: str
    load_inplace: bool = False


class LoraManager:
    """vLLM's `LRUCacheWorkerLoRAManager`: by number, what the files of an adapter were when it was
    loaded."""

    def __init__(self, most: int = 2) -> None:
        self.most = most
        self.loaded: dict[int, str] = {}

    def list_adapters(self) -> set[int]:
        return set(self.loaded)

    def _load_adapter(self, lora: Lora) -> str:
        return "".join(path.read_text() for path in sorted(Path(lora.lora_path).iterdir()))

    def add_adapter(self, lora: Lora) -> None:
        mine = self.loaded.pop(lora.lora_int_id, None)
        fresh = mine is None or lora.load_inplace
        self.loaded[lora.lora_int_id] = self._load_adapter(lora) if fresh else str(mine)
        while len(self.loaded) > self.most:
            del self.loaded[next(iter(self.loaded))]


class Worker:
    """vLLM's worker and its model runner, one for all ranks."""

    def __init__(self) -> None:
        self.model_runner = self
        self.lora_manager = LoraManager()
        self.model = torch.nn.Linear(4, 4, bias=False)
        torch.nn.init.zeros_(self.model.weight)  # as a server that is started again

    def get_model(self) -> torch.nn.Module:
        return self.model

    def reload_weights(self) -> None:
        self.write()

    def write(self) -> None:
        """As a function of somebody's own does, which nobody sees."""
        self.model.weight.data += 1.0

    def computes_with(self, lora: Lora | None) -> str:
        adapter = ""
        if lora is not None:
            self.lora_manager.add_adapter(lora)
            adapter = self.lora_manager.loaded[lora.lora_int_id]
        return f"{self.model.weight.tolist()}{adapter}"


@dataclass(eq=False)
class Request:
    request_id: str
    all_token_ids: list[int]
    num_prompt_tokens: int
    wanted: int
    cache_salt: str | None = None
    num_computed_tokens: int = 0
    blocks: list[list[Block]] = field(default_factory=list)
    lora_request: Lora | None = None
    mm_features: tuple[Any, ...] = ()
    prompt_embeds: Any = None
    loading: bool = False
    ended: bool = False
    waited: int = 0

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def place(self) -> tuple[str, str] | None:
        """What vLLM knows an adapter by in its hashes."""
        lora = self.lora_request
        return None if lora is None else (lora.lora_name, lora.lora_path)


class Pool:
    """vLLM's `BlockPool`: references, hashes, and free blocks in the order of their release."""

    def __init__(self, blocks: int) -> None:
        self.blocks = [Block(number) for number in range(blocks)]
        self.null = self.blocks[0]
        self.null.is_null = True
        self.free: list[Block] = self.blocks[1:]
        self.cached: dict[Any, Block] = {}

    def touch(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            if block.ref_cnt == 0 and not block.is_null:
                self.free.remove(block)
            block.ref_cnt += 1

    def free_blocks(self, blocks: Sequence[Block]) -> None:
        for block in blocks:
            block.ref_cnt -= 1
            assert block.ref_cnt >= 0 or block.is_null, "a block is given back twice"
            if block.ref_cnt == 0 and not block.is_null:
                self.free.append(block)

    def take(self) -> Block:
        block = self.free.pop(0)
        if block.block_hash is not None:
            if self.cached.get(block.block_hash) is block:
                del self.cached[block.block_hash]
            block.block_hash = block.block_hash_num_tokens = None
        block.mixed = False
        block.ref_cnt = 1
        return block

    def forget(self) -> None:
        for block in self.blocks:
            block.block_hash = block.block_hash_num_tokens = None
        self.cached.clear()


class Engine:
    """Serves requests in steps. tensors: of each rank, as arrays."""

    def __init__(
        self,
        config: Any,
        scheduler: ConnectorScheduler,
        workers: Sequence[ConnectorWorker],
        tensors: Sequence[dict[str, Any]],
        *,
        chunk: int,
        window: int,
        worker: Worker,
        faults: float = 0.0,
    ) -> None:
        """faults: the share of answers that say of what was to be done that it failed."""
        self.worker = worker
        self._computed: dict[Any, str] = {}  # by adapter, with what its blocks were computed
        self.faults, self.draw = faults, random.Random(0)
        self.config, self.scheduler, self.workers, self.tensors = (
            config,
            scheduler,
            workers,
            tensors,
        )
        self.groups: Groups = groups_of(config)
        self.pool = Pool(config.num_blocks)
        scheduler.orders.use(self.pool)
        self.chunk, self.window = chunk, window
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.arriving: dict[str, Request] = {}
        self.hits: dict[str, tuple[int, int]] = {}
        self.failed = 0
        self.arrived = 0  # tokens of loads that landed
        self.saved = 0  # pages whose copies to host have ended on all ranks
        self._copies: dict[int, list[Any]] = {}  # by transfer: pages, and the ranks' answers
        self.weights = 0  # resets that emptied all caches
        self.reset_preempted: list[Request] = []
        self._ranks_left: dict[str, int] = {}
        self._failing: set[str] = set()
        for rank in workers:
            rank._executor.poll = partial(self._faulty, rank._executor.poll)  # type: ignore[method-assign]

    # -- what a position holds

    def digest(self, request: Request, end: int, layer: str = "") -> bytes:
        computed = self._computed.get(request.place)
        what = (self.weights, computed, layer, request.cache_salt)
        return digest_of(what, tuple(request.all_token_ids[:end]))

    def hash_of(self, group: Any, request: Request, index: int) -> Any:
        tokens = request.all_token_ids[: (index + 1) * group.block]
        return group.number, request.place, request.cache_salt, tuple(tokens)

    # -- scheduling

    def send(self, request: Request) -> None:
        request.blocks = [[] for _ in self.groups.groups]
        self.waiting.append(request)

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running or self.arriving or self.scheduler.orders.busy)

    def step(self) -> int:
        """Returns the number of requests that had a pass."""
        work: dict[str, int] = {}
        preempted: list[Request] = []
        for request in self.reset_preempted:
            self.scheduler.preempted(request.request_id)
        self.reset_preempted.clear()
        for request in list(self.running):
            if request in self.running:
                self._grow(request, work, preempted)
        for request in list(self.waiting):
            if preempted or not self._admit(request, work):
                break
        for request in preempted:
            self.scheduler.preempted(request.request_id)
        by_name = {request.request_id: request for request in self.running}
        for name, tokens in work.items():
            request = by_name[name]
            before = request.num_computed_tokens
            self.scheduler.save(
                request,
                before + tokens,
                request.blocks,
                all_of_it=before < request.num_prompt_tokens,
            )
        message = self.scheduler.message()
        first = next(group.slot(0) for group in self.groups.groups if group.component == FULL)
        for action in message.backups:
            pages = sum(len(copy.source) for copy in action.copies if copy.component == first)
            self._copies[action.transfer] = [pages]
        for worker in self.workers:
            worker.load(message)
        for name, tokens in work.items():
            self._forward(by_name[name], tokens)
        for worker in self.workers:
            worker.save(message)
        self.poll()
        for name, tokens in work.items():
            self._advance(by_name[name], tokens)
        return len(work)

    def poll(self) -> None:
        """Take what the workers have ended."""
        polled = [worker.poll() for worker in self.workers]
        answers = [answer for answer, _ in polled]
        self._landed(answers, [name for _, loaded in polled for name in loaded])

    def _grow(self, request: Request, work: dict[str, int], preempted: list[Request]) -> None:
        tokens = self._chunk(request, request.num_computed_tokens)
        while not self._allocate(request, request.num_computed_tokens + tokens):
            victim = self._preempt()
            work.pop(victim.request_id, None)
            preempted.append(victim)
            if victim is request:
                return
        work[request.request_id] = tokens
        self._cache(request, request.num_computed_tokens + tokens)

    def _preempt(self) -> Request:
        victim = self.running.pop()
        self._release(victim)
        victim.num_computed_tokens = 0
        self.waiting.insert(0, victim)
        return victim

    def reset(self) -> bool:
        """`reset_prefix_cache` with `reset_running_requests` and `reset_connector`, and new weights
        if all caches are empty."""
        if not self.empty():
            return False
        assert self.scheduler.reset()
        self.weights += 1
        return True

    def empty(self) -> bool:
        """`reset_prefix_cache` with `reset_running_requests`. vLLM raises an error where a copy has
        blocks, or a request that waits for one."""
        while self.running:
            self.reset_preempted.append(self._preempt())
        if len(self.pool.free) < len(self.pool.blocks) - 1:
            return False
        self.pool.forget()
        self._computed.clear()
        return True

    def _admit(self, request: Request, work: dict[str, int]) -> bool:
        """Returns False if nobody behind it may be admitted now."""
        local, blocks = self._local(request)
        external = self.scheduler.matched_tokens(request, local)
        if external is None:
            request.waited += 1
            return True
        total = local + external
        tokens = 0 if external else self._chunk(request, total)
        for kept in blocks:
            self.pool.touch([block for block in kept if not block.is_null])
        request.blocks = blocks
        if not self._allocate(request, total + tokens, base=total):
            self._release(request)
            return False
        self.waiting.remove(request)
        request.num_computed_tokens = total
        self.scheduler.after_alloc(request, request.blocks, external)
        self.hits[request.request_id] = (local, external)
        if external:
            request.loading = True
            self.arriving[request.request_id] = request
        else:
            self.running.append(request)
            work[request.request_id] = tokens
            self._cache(request, total + tokens)
        return True

    def _chunk(self, request: Request, start: int) -> int:
        """Tokens of the next pass. With states, one that does not end the prompt ends a block."""
        tokens = min(self.chunk, request.num_tokens - start)
        sizes = [group.block for group in self.groups.groups if group.component == STATE]
        if (sizes and start + tokens < request.num_tokens) or (sizes and tokens > sizes[0]):
            aligned = (start + tokens) // sizes[0] * sizes[0] - start
            return aligned if aligned > 0 else tokens
        return tokens

    def _local(self, request: Request) -> tuple[int, list[list[Block]]]:
        """vLLM's own hit: the longest whole pages of which every group has what it reads."""
        size = self.groups.page
        for pages in range((request.num_tokens - 1) // size, 0, -1):
            blocks = [self._cached(group, request, pages * size) for group in self.groups.groups]
            if all(item is not None for item in blocks):
                return pages * size, [item for item in blocks if item is not None]
        return 0, [[] for _ in self.groups.groups]

    def _cached(self, group: Any, request: Request, end: int) -> list[Block] | None:
        first = self._first_read(group, end)
        blocks = []
        for index in range(end // group.block):
            block = self.pool.cached.get(self.hash_of(group, request, index))
            if index < first:
                block = self.pool.null
            if block is None:
                return None
            blocks.append(block)
        return blocks

    def _first_read(self, group: Any, end: int) -> int:
        """The first block that a pass from position `end` on reads."""
        if group.component == FULL:
            return 0
        if group.component == STATE:
            return max(0, end - 1) // group.block
        return max(0, end - self.window + 1) // group.block

    def _allocate(self, request: Request, end: int, base: int | None = None) -> bool:
        """Blocks for all positions before `end`. base: where a request that begins starts."""
        start = request.num_computed_tokens if base is None else base
        wanted = []
        for group, mine in zip(self.groups.groups, request.blocks, strict=True):
            first = self._first_read(group, start)
            for index in range(min(first, len(mine))):
                if not mine[index].is_null:
                    self.pool.free_blocks([mine[index]])
                    mine[index] = self.pool.null
            count = -(-end // group.block)
            wanted.append([index >= first for index in range(len(mine), count)])
        if sum(map(sum, wanted)) > len(self.pool.free):
            return False
        for mine, more in zip(request.blocks, wanted, strict=True):
            mine += [self.pool.take() if real else self.pool.null for real in more]
        return True

    def _release(self, request: Request) -> None:
        for mine in request.blocks:
            self.pool.free_blocks([block for block in reversed(mine) if not block.is_null])
        request.blocks = [[] for _ in self.groups.groups]

    def _cache(self, request: Request, end: int) -> None:
        """Blocks get their hashes when they are scheduled to be full; a state's only where a pass
        ends, as in mode `align`, and that of a window only where a hit would read it
        (reachable_block_mask)."""
        known = min(end, request.num_tokens)
        for group, mine in zip(self.groups.groups, request.blocks, strict=True):
            for index in range(known // group.block):
                block = mine[index]
                aligned = group.component != STATE or (index + 1) * group.block == known
                last = -(-(index + 1) * group.block // self.groups.page) * self.groups.page
                unread = group.component == WINDOW and (
                    (index + 1) * group.block <= last - self.window + 1
                )
                if block.is_null or block.block_hash is not None or not aligned or unread:
                    continue
                block.block_hash = self.hash_of(group, request, index)
                block.block_hash_num_tokens = (index + 1) * group.block
                self.pool.cached.setdefault(block.block_hash, block)

    # -- passes

    def _forward(self, request: Request, tokens: int) -> None:
        start, end = request.num_computed_tokens, request.num_computed_tokens + tokens
        self._compute_with(request)
        mixed = any(block.mixed for mine in request.blocks for block in mine if not block.is_null)
        for tensors in self.tensors:
            for group, mine in zip(self.groups.groups, request.blocks, strict=True):
                if not mixed:
                    self._read(tensors, group, request, mine, start)
                self._write(tensors, group, request, mine, start, end, mixed)

    def _compute_with(self, request: Request) -> None:
        """If vLLM has blocks of other weights, or of what the adapter was, they are mixed."""
        now, place = self.worker.computes_with(request.lora_request), request.place
        if self._computed.get(place, now) != now:
            mixed = [
                block
                for block in self.pool.blocks
                if block.block_hash and block.block_hash[1] == place
            ]
            for other in self.running:
                if other.place == place and other.num_computed_tokens:
                    mixed += [block for mine in other.blocks for block in mine if not block.is_null]
            for item in mixed:
                item.mixed = True
        self._computed[place] = now

    def _read(
        self, tensors: Any, group: Any, request: Request, mine: list[Block], start: int
    ) -> None:
        if group.component == STATE:
            places = [start] if start else []
        else:
            first = 0 if group.component == FULL else max(0, start - self.window + 1)
            places = list(range(first + 1, start + 1))
        for end in places:
            index = (end - 1) // group.block
            for layer in group.layers:
                row = tensors[layer][mine[index].block_id]
                row = row if group.component == STATE else row[(end - 1) % group.block]
                assert row.tobytes() == self.digest(request, end, layer), (
                    f"{request.request_id}: {layer} of block {mine[index].block_id} has something "
                    f"else at token {end}"
                )

    def _write(
        self,
        tensors: Any,
        group: Any,
        request: Request,
        mine: list[Block],
        start: int,
        end: int,
        mixed: bool,
    ) -> None:
        for place in range(start + 1, end + 1):
            index = (place - 1) // group.block
            mine[index].mixed |= mixed
            for layer in group.layers:
                row = b"mixed..." if mixed else self.digest(request, place, layer)
                block = tensors[layer][mine[index].block_id]
                mine_row = block if group.component == STATE else block[(place - 1) % group.block]
                mine_row[:] = np.frombuffer(row, np.uint8).reshape(mine_row.shape)

    def _advance(self, request: Request, tokens: int) -> None:
        request.num_computed_tokens += tokens
        if request.num_computed_tokens < request.num_tokens:
            return
        if request.num_tokens - request.num_prompt_tokens < request.wanted:
            request.all_token_ids.append(self.digest(request, request.num_tokens)[0])
            return
        self.end(request)

    def end(self, request: Request) -> None:
        """It has ended, or is aborted."""
        self.scheduler.ended(request, request.blocks)
        request.ended = True
        if request in self.running:
            self.running.remove(request)
        if request in self.waiting:
            self.waiting.remove(request)
        if not request.loading:
            self._release(request)

    def _faulty(self, poll: Callable[[], list[Any]]) -> list[Any]:
        """What a rank's copies and its storage answer, of which some fail."""
        return [
            type(reply)(reply.transfer, type(reply[1])(0))
            if self.draw.random() < self.faults
            else reply
            for reply in poll()
        ]

    def _landed(self, answers: Sequence[Answer], loaded: Sequence[str]) -> None:
        answer = reduce(Answer.with_other, answers)
        for transfer, offer in answer.done:
            self._copies.get(transfer, []).append(offer)
        for transfer in [at for at, copy in self._copies.items() if len(copy) > len(self.workers)]:
            pages, *offers = self._copies.pop(transfer)
            self.saved += pages if all(offers) else 0
        self._failing |= self.scheduler.carry_on(answer)
        for name in loaded:
            self._ranks_left[name] = self._ranks_left.get(name, len(self.workers)) - 1
        for name in [name for name, left in self._ranks_left.items() if not left]:
            del self._ranks_left[name]
            request = self.arriving.pop(name)
            request.loading = False
            if name not in self._failing:
                self.arrived += self.hits[name][1]
            if request.ended:
                self._release(request)
            elif name in self._failing:
                self.failed += 1
                self._release(request)
                request.num_computed_tokens = 0
                self.waiting.insert(0, request)
            else:
                self._cache(request, request.num_computed_tokens)
                self.running.append(request)
            self._failing.discard(name)
