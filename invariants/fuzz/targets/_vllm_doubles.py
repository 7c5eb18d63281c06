"""What stands around vLLM's cache: requests, the configuration of a model's cache, and a worker's
memory.

Requests are the engine's own, with a stand-in for sampling parameters. The memory follows what each
block holds, row by row, as a model's kernels would write and read it. Scripts copy definitions from
here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Any, NamedTuple

import torch
from vllm.utils.hashing import sha256
from vllm.v1 import kv_cache_interface
from vllm.v1.core import kv_cache_utils
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, maybe_convert_block_hash
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    KVCacheConfig,
    KVCacheGroupSpec,
    MambaSpec,
    SlidingWindowSpec,
)
from vllm.v1.request import Request

from invariants.fuzz.target import need

UNWRITTEN, DRAFTED, BROKEN = -1, -4, -6  # contents that no prefix has


class Sampling:
    """Stands in for SamplingParams, of which a request reads little."""

    structured_outputs = extra_args = skip_reading_prefix_cache = num_logprobs = None
    logprobs = prompt_logprobs = repetition_detection = eos_token_id = None
    min_tokens, stop_token_ids, ignore_eos, all_stop_token_ids = 0, (), True, frozenset[int]()

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens


def make_request(name: str, tokens: list[int], salt: str, page: int, more: int) -> Request:
    """A request for `more` tokens. page: tokens of a block hash."""
    if not hasattr(kv_cache_utils, "NONE_HASH"):
        kv_cache_utils.init_none_hash(sha256)
    return Request(
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=Sampling(more),
        pooling_params=None,
        cache_salt=salt or None,
        block_hasher=get_request_block_hasher(page, sha256),
    )


class Group(NamedTuple):
    """One group of layers. kind: "full"; "window" or "chunk" of `reach` tokens; "align" or "all",
    the two ways in which states of Mamba layers are cached. block: tokens of a block. spare: blocks
    for the states of drafted tokens. drafter: its layers draft tokens.
    """

    kind: str
    block: int
    reach: int = 0
    spare: int = 0
    drafter: bool = False


def cache_config(blocks: int, groups: Sequence[Group], layers: int = 1) -> KVCacheConfig:
    """The cache of a model with these groups. layers: of the second group and every other one
    behind it; the others have one."""
    # This function is in a module that is a stub here, since the rest of that needs a GPU.
    kv_cache_interface.get_dtype_size = lambda dtype: dtype.itemsize
    made = [
        KVCacheGroupSpec(
            [f"layer {at}" + f" {one}" * (layers > 1) for one in range(layers if at % 2 else 1)],
            _spec(group),
            is_eagle_group=group.drafter,
        )
        for at, group in enumerate(groups)
    ]
    return KVCacheConfig(num_blocks=blocks, kv_cache_tensors=[], kv_cache_groups=made)


def _spec(group: Group) -> Any:
    if group.kind in ("align", "all"):
        return MambaSpec(
            block_size=group.block,
            shapes=((8 * group.block,),),
            dtypes=(torch.float16,),
            mamba_cache_mode=group.kind,
            num_speculative_blocks=group.spare,
        )
    given: dict[str, Any] = {
        "block_size": group.block,
        "num_kv_heads": 1,
        "head_size": 4,
        "dtype": torch.float16,
    }
    if group.kind == "window":
        return SlidingWindowSpec(**given, sliding_window=group.reach)
    if group.kind == "chunk":
        return ChunkedLocalAttentionSpec(**given, attention_chunk_size=group.reach)
    return FullAttentionSpec(**given)


class Work(NamedTuple):
    """What one request computes in one step: positions `start` to `end` of its tokens, and drafted
    tokens behind. tables: its blocks, by group. kept: drafted tokens that turn out to be right.
    ahead: rows behind that a drafter may write. fresh: the request was just admitted.
    """

    request: Request
    tables: Sequence[Sequence[int]]
    start: int
    end: int
    drafts: Sequence[int] = ()
    kept: int = 0
    ahead: int = 0
    fresh: bool = False


class Memory:
    """The blocks of a worker. Every row of a block has a digest of the whole prefix that it was
    computed from: a model that reads another one gives a wrong answer. judged: whether what is read
    is judged.
    """

    judged = True

    def __init__(self, groups: Sequence[Group]) -> None:
        self.groups = groups
        self.rows: dict[int, list[int]] = {}
        self.owner: dict[int, int] = {}  # by block, the group that wrote it last
        self.rotten: set[int] = set()  # blocks with rows of a load that failed, or computed from it
        self.dirty: set[int] = set()  # blocks that were written since their hashes were judged
        self.means: dict[bytes, tuple[int, int]] = {}  # by block hash: the prefix's digest, length
        self._known: dict[tuple[Any, int], int] = {}
        self._chains: dict[str, list[int]] = {}
        self._column: dict[tuple[str, int], tuple[int, int]] = {}

    # -- prefixes

    def chain(self, request: Request, until: int, drafts: Sequence[int] = ()) -> list[int]:
        """The digests of the first `until` tokens of a request, and of drafted tokens behind."""
        name = request.request_id
        chain = self._chains.setdefault(name, [])
        if len(chain) < until:
            self._extend(chain, request._all_token_ids[len(chain) : until], request)
        if not drafts:
            return chain
        longer = chain[:until]
        self._extend(longer, drafts, request)
        return longer

    def _extend(self, chain: list[int], tokens: Sequence[int], request: Request) -> None:
        known = self._known
        last: Any = chain[-1] if chain else request.cache_salt
        for token in tokens:
            last = known.setdefault((last, token), len(known) + 1)
            chain.append(last)

    def learn(self, request: Request, page: int) -> list[int]:
        """Notes what the block hashes of a request stand for. page: tokens of a block hash."""
        chain = self.chain(request, len(request._all_token_ids))
        hashes, means = request.block_hashes, self.means
        for at in range(len(hashes) - 1, -1, -1):
            if hashes[at] in means:
                break
            means[hashes[at]] = chain[(at + 1) * page - 1], (at + 1) * page
        return chain

    def forget(self, name: str) -> None:
        """The request is gone."""
        self._chains.pop(name, None)
        for at in range(len(self.groups)):
            self._column.pop((name, at), None)

    # -- a step

    def step(self, works: Sequence[Work], copies: Sequence[tuple[int, int]] = ()) -> None:
        """A step of the model. copies: of whole blocks, before it. Raises Broken if it reads what
        is not its own prefix."""
        for source, target in copies:
            self.copy(source, target)
        chains = [self.chain(one.request, one.end, one.drafts) for one in works]
        for at, group in enumerate(self.groups):
            pairs = list(zip(works, chains, strict=True))
            if group.kind in ("align", "all"):
                self._states(at, group, pairs)
            else:
                for one, chain in pairs:
                    self._write(at, group.block, one, chain)
                for one, chain in pairs:
                    self._read(at, group, one, chain)

    def spoils(self, one: Work, bad: Container[int]) -> bool:
        """Whether a request reads what could not be loaded in this step; then it computes what no
        prefix has."""
        sizes = [group.block for group in self.groups]
        pairs = [*zip(one.tables, sizes, strict=True)]
        if not any(
            block in bad for table, size in pairs for block in table[: -(-one.start // size)]
        ):
            return False
        for at, (table, size) in enumerate(pairs):
            for place in range(one.start, one.end + len(one.drafts)):
                block = table[place // size]
                content = self.content(block)[1] or (UNWRITTEN,) * size
                self.restore(
                    block, at, [*content[: place % size], BROKEN, *content[place % size + 1 :]]
                )
                self.rotten.add(block)
        return True

    def copy(self, source: int, target: int) -> None:
        """Copies a whole block."""
        self.rows[target] = list(self.rows.get(source, ()))
        self.owner[target] = self.owner.get(source, -1)
        self.dirty.add(target)

    def _write(self, at: int, size: int, one: Work, chain: list[int]) -> None:
        table, rows = one.tables[at], self.rows
        end = one.end + len(one.drafts)
        place = one.start
        while place < end:
            first = place // size * size
            stop = min(end, first + size)
            block = table[place // size] if place // size < len(table) else 0
            self._own(block, at, one, place)
            old = rows.get(block)
            if old is None or len(old) != size or self.owner.get(block) != at:
                rows[block] = old = [UNWRITTEN] * size
                self.owner[block] = at
            self.dirty.add(block)
            old[place - first : stop - first] = chain[place:stop]
            if self.rotten and BROKEN not in old:
                self.rotten.discard(block)
            place = stop
        for place in range(end, min(end + one.ahead, len(table) * size)):
            block = table[place // size]
            if block and self.owner.get(block) == at and len(rows[block]) == size:
                rows[block][place % size] = DRAFTED

    def _own(self, block: int, at: int, one: Work, place: int) -> None:
        name = one.request.request_id
        need(block, "BYTES", f"request {name} group {at} has no block for position {place}", "no")

    def _read(self, at: int, group: Group, one: Work, chain: list[int]) -> None:
        size, table, rows, owner = group.block, one.tables[at], self.rows, self.owner
        place = 0
        if group.kind == "window":
            place = max(0, one.start - group.reach + 1)
        elif group.kind == "chunk":
            place = one.start // group.reach * group.reach
        while place < one.start:
            index = place // size
            first = index * size
            stop = min(one.start, first + size)
            block = table[index] if index < len(table) else 0
            if owner.get(block) != at or (
                rows[block][place - first : stop - first] != chain[place:stop]
            ):
                self._wrong(at, one, place, block)
            place = stop

    def _wrong(self, at: int, one: Work, place: int, block: int) -> None:
        if not self.judged:
            return
        held = "the null block" if not block else f"block {block}, which holds another prefix"
        if block and self.owner.get(block) is None:
            held = f"block {block}, which nobody wrote"
        text = f"request {one.request.request_id} group {at} reads position {place} from {held}"
        need(False, "BYTES", text, f"read {self.groups[at].kind}")

    # -- states of Mamba layers

    def _states(self, at: int, group: Group, pairs: Sequence[tuple[Work, list[int]]]) -> None:
        """Each layer first brings the last state into the block that it will write, then computes
        all requests, then keeps the states at block boundaries (v1/worker/mamba_utils.py)."""
        for one, chain in pairs:
            if group.kind == "align":
                self._bring(at, group.block, one)
            self._started(at, group, one, chain)
        for one, chain in pairs:
            self._computed(at, group, one, chain)

    def _bring(self, at: int, size: int, one: Work) -> None:
        key = one.request.request_id, at
        column, bias = self._column.get(key, (-1, 0))
        if one.fresh:
            column, bias = (one.start - 1) // size if one.start else -1, 0
        new = -(-(one.end + len(one.drafts)) // size) - 1
        table = one.tables[at]
        if 0 <= column != new:
            self._own(table[new] if new < len(table) else 0, at, one, one.start)
            self.copy(table[column + bias], table[new])
            bias = 0
        self._column[key] = new, bias

    def _started(self, at: int, group: Group, one: Work, chain: list[int]) -> None:
        if not one.start:
            return
        table = one.tables[at]
        if group.kind == "align":
            column, bias = self._column[one.request.request_id, at]
            index = column + bias
        else:
            index = (one.start - 1) // group.block
        block = table[index] if index < len(table) else 0
        if not block or self.owner.get(block) != at or self.rows[block] != [chain[one.start - 1]]:
            self._wrong(at, one, one.start - 1, block)

    def _computed(self, at: int, group: Group, one: Work, chain: list[int]) -> None:
        size, table = group.block, one.tables[at]
        last = one.end + len(one.drafts)
        if group.kind == "all":
            for index in range(one.start // size, -(-last // size)):
                self._put(at, one, index, chain[min(last, (index + 1) * size) - 1])
            return
        key = one.request.request_id, at
        column, _ = self._column[key]
        if not one.drafts:
            self._put(at, one, column, chain[last - 1])
            self._column[key] = column, 0
            return
        for place in range(one.end - 1, last):
            self._put(at, one, column + place - one.end + 1, chain[place])
        new = one.end + one.kept
        bias, whole = one.kept, new // size * size
        if whole >= one.end:
            target = whole // size - 1
            if target != column or whole > one.end:
                self._own(table[target], at, one, whole - 1)
                self.copy(table[column + whole - one.end], table[target])
            bias = 0 if target == column else bias
        self._column[key] = column, bias

    def _put(self, at: int, one: Work, index: int, digest: int) -> None:
        table = one.tables[at]
        block = table[index] if index < len(table) else 0
        self._own(block, at, one, one.start)
        self.rows[block], self.owner[block] = [digest], at
        self.dirty.add(block)

    # -- copies from and to elsewhere

    def content(self, block: int) -> tuple[int, tuple[int, ...]]:
        """The group that wrote a block, and its rows."""
        return self.owner.get(block, -1), tuple(self.rows.get(block, ()))

    def restore(self, block: int, owner: int, rows: Sequence[int]) -> None:
        self.owner[block], self.rows[block] = owner, list(rows)
        self.dirty.add(block)

    def fill(self, block: int, group: int, value: int) -> None:
        """Every row of a block becomes this."""
        states = self.groups[group].kind in ("align", "all")
        self.restore(block, group, [value] * (1 if states else self.groups[group].block))

    def is_filled(self, block: int, group: int, value: int) -> bool:
        return self.owner.get(block) == group and set(self.rows[block]) == {value}


def audit(manager: Any, held: Container[str], lent: Sequence[int] = ()) -> None:
    """Raises Broken unless every block has the holders that it counts, what nothing holds is free,
    and what the index names is there. held: requests that have blocks. lent: blocks that a copy
    holds beside them. An index is judged only after the step that it was filled for.
    """
    pool = manager.block_pool
    holders = [0] * len(pool.blocks)
    for block in lent:
        holders[block] += 1
    for single in manager.coordinator.single_type_managers:
        for pair in single._pending_cow_copies:
            for one in pair:
                holders[one.block_id] += 1
        for name, blocks in single.req_to_blocks.items():
            if blocks and name not in held:
                need(False, "OWN", f"request {name} is gone and still has {len(blocks)} blocks")
            for one in blocks:
                holders[one.block_id] += 1
    free = 0
    for one in pool.blocks:
        if one.ref_cnt != holders[one.block_id] and not one.is_null:
            _miscounted(one, holders[one.block_id])
        free += not holders[one.block_id]
    free -= not holders[0]
    listed = pool.free_block_queue.get_all_free_blocks()
    if not len(listed) == free == pool.get_num_free_blocks():
        counted = f"{pool.get_num_free_blocks()} counted as free, {len(listed)} in the queue"
        need(False, "POOL-SUM", f"{counted}, {free} that nothing holds")
    for one in listed:
        if one.ref_cnt:
            need(False, "OWN", f"block {one.block_id} is free and held", "free and held")


def _miscounted(block: Any, holders: int) -> None:
    text = f"block {block.block_id} counts {block.ref_cnt} holders and has {holders}"
    need(False, "LOCK-BAL", text, "too many" if block.ref_cnt > holders else "too few")


def audit_index(manager: Any, memory: Memory, everything: bool = True) -> None:
    """Raises Broken unless every block that a hash leads to holds the prefix of that hash.
    everything: not only of blocks that were written since the last call."""
    pool = manager.block_pool
    more = pool.cached_block_hashes_by_block
    if not everything:
        for number in memory.dirty:
            block = pool.blocks[number]
            if block.block_hash is not None:
                _judge_hash(memory, block, block.block_hash)
                for key in more.get(number, ()):
                    _judge_hash(memory, block, key)
        memory.dirty.clear()
        return
    memory.dirty.clear()
    hashed = 0
    for key, found in pool.cached_block_hash_to_block._cache.items():
        for block in found.values() if type(found) is dict else (found,):
            hashed += 1
            _judge_hash(memory, block, key)
            if block.block_hash is None:
                text = f"the index leads to block {block.block_id}, which has no hash"
                need(False, "OWN", text, "hash")
    own = sum(block.block_hash is not None for block in pool.blocks)
    own += sum(map(len, more.values()))
    if hashed != own:
        text = f"{own} hashes on blocks, {hashed} of them lead to their block"
        need(False, "OWN", text, "index")


def _judge_hash(memory: Memory, block: Any, key: bytes) -> None:
    group, number = key[-1], block.block_id
    if number in memory.rotten:  # it is to be computed again, see audit_failed
        return
    digest, length = memory.means[key[-36:-4]]
    have = memory.rows.get(number)
    row = (length - 1) % memory.groups[group].block
    if (
        have is None
        or memory.owner[number] != group
        or have[row if row < len(have) else 0] != digest
    ):
        text = f"group {group} block {number} is cached for {length} tokens, and holds something"
        need(False, "BYTES", f"{text} else", f"index {memory.groups[group].kind}")


class Mirror:
    """What a listener to the KV events thinks is cached: how often, by group and block hash."""

    def __init__(self) -> None:
        self.cached: Counter[tuple[int, Any]] = Counter()
        self.named: dict[bytes, Any] = {}  # by block hash, as events name it

    def publish(self, batch: Any) -> None:
        """Takes what the scheduler publishes. A tier on host has events of its own."""
        self.hear([one for one in batch.events if getattr(one, "medium", None) in (None, "GPU")])

    def shutdown(self) -> None:
        """Nothing to end."""

    def hear(self, events: Sequence[Any]) -> None:
        """Takes events in their order."""
        for event in events:
            kind = type(event).__name__
            if kind == "AllBlocksCleared":
                self.cached.clear()
                continue
            for one in event.block_hashes:
                self.cached[event.group_idx, one] += 1 if kind == "BlockStored" else -1


def audit_events(manager: Any, mirror: Mirror) -> None:
    """Raises Broken unless a listener to the events knows what is cached."""
    told = Mirror()
    told.cached = mirror.cached.copy()
    told.hear(manager.block_pool.kv_event_queue)
    there: Counter[tuple[int, Any]] = Counter()
    for key, found in manager.block_pool.cached_block_hash_to_block._cache.items():
        name = mirror.named.get(key)
        if name is None:
            mirror.named[key] = name = maybe_convert_block_hash(key[:-4])
        one = key[-1], name
        there[one] += len(found) if type(found) is dict else 1
    for one in there.keys() | told.cached.keys():
        if there[one] != told.cached[one]:
            text = f"group {one[0]}: {there[one]} blocks are cached under a hash"
            kind = "too many" if told.cached[one] > there[one] else "too few"
            need(False, "EVENT-MIRROR", f"{text}, the events tell of {told.cached[one]}", kind)
