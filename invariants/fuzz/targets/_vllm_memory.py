"""A worker's memory: what each block of vLLM's cache holds, row by row, as a model's kernels would
write and read it; and the laws of the device. Scripts copy definitions from here."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any, NamedTuple

from invariants.fuzz.target import need
from invariants.fuzz.targets._vllm_engine import Group

UNWRITTEN, MOVING, DRAFTED, TORN, BROKEN = -1, -3, -4, -5, -6  # contents that no prefix has
Content = tuple[int, tuple[int, ...]]  # the group that wrote a block, and its rows


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


# -- laws


def audit(scheduler: Any, names: Container[str], kept: Sequence[int] = ()) -> None:
    """Raises Broken unless every block has the holders that it counts, and what nothing holds is
    free. names: of requests that have blocks. kept: blocks that a copy holds beside them."""
    manager = scheduler.kv_cache_manager
    pool = manager.block_pool
    holders = [0] * len(pool.blocks)
    for number in kept:
        holders[number] += 1
    for _, blocks in scheduler.deferred_frees:  # of requests that ended while a step was under way
        for block in blocks:
            holders[block.block_id] += 1
    for single in manager.coordinator.single_type_managers:
        for pair in single._pending_cow_copies:
            for block in pair:
                holders[block.block_id] += 1
        for name, blocks in single.req_to_blocks.items():
            if blocks and name not in names:
                need(False, "OWN", f"request {name} is gone and still has {len(blocks)} blocks")
            for block in blocks:
                holders[block.block_id] += 1
    for block in pool.blocks:
        count = holders[block.block_id]
        if block.ref_cnt != count and not block.is_null:
            text = f"block {block.block_id} counts {block.ref_cnt} holders and has {count}"
            need(False, "LOCK-BAL", text, "too many" if block.ref_cnt > count else "too few")
    free = {number for number, count in enumerate(holders) if number and not count}
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
