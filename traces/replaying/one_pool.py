"""Hits where several groups of layers share one pool of blocks, as in vLLM's hybrid cache.

Each group (full attention, or a sliding window) has a block for each block of a prompt, and all
take theirs from one pool. A hit is what every group can restore: full attention needs all blocks
before its end, a window those that it reads. They are asked in turn until all agree. Blocks behind
a window are given back before the next chunk or token is computed. A block that is given back is
taken last; one that cannot be hit, first. One that is computed again is kept beside the old one.

Of windows, vLLM lets be hit what a later prompt may need: the blocks before the last token of the
prompt, before the end of what full attention alone had of it, and if `retention` is not 0 before
each multiple of that; all if it is None.

The core has a pool for each kind of page, so this is a model of its own, without the core. Groups
have blocks of one size. Does not know states (Mamba, GDN), host memory or storage.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b

from hicache.core.errors import CallerError
from sim.engine.sequence import final_length
from sim.options import EngineOptions

from ..formats.base import Paged
from .passes import Passes, Request

_Key = tuple[int, int]  # a group, and what stands in a block and before it


class BlockPool:
    """The blocks of all groups. evicted: a digest of the keys that went, in their order."""

    def __init__(self, blocks: int) -> None:
        self._free = OrderedDict.fromkeys(range(blocks))  # the first is taken first
        self._users = [0] * blocks
        self._keys: list[_Key | None] = [None] * blocks
        self._filed: dict[_Key, dict[int, None]] = {}
        self._evicted = blake2b(digest_size=16)

    @property
    def free(self) -> int:
        """Blocks that nobody uses."""
        return len(self._free)

    @property
    def evicted(self) -> str:
        return self._evicted.hexdigest()

    def find(self, key: _Key) -> int | None:
        """The block that was filed first under a key, of those that are there."""
        return next(iter(self._filed.get(key, ())), None)

    def unused(self, blocks: Sequence[int | None]) -> int:
        """How many of these blocks are free."""
        return sum(block is not None and not self._users[block] for block in blocks)

    def take(self, count: int) -> list[int]:
        """So many free blocks; what they held is gone."""
        taken = [self._free.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._users[block] = 1
            key, self._keys[block] = self._keys[block], None
            if key is not None:
                same = self._filed[key]
                del same[block]
                if not same:
                    del self._filed[key]
                self._evicted.update(repr(key).encode())
        return taken

    def share(self, blocks: Sequence[int | None]) -> None:
        """Use blocks that are filed."""
        for block in blocks:
            if block is not None:
                self._free.pop(block, None)
                self._users[block] += 1

    def file(self, block: int, key: _Key) -> None:
        """The block is full and can be hit."""
        self._keys[block] = key
        self._filed.setdefault(key, {})[block] = None

    def give(self, blocks: Sequence[int | None]) -> None:
        """Blocks are not used any more; those that come first here are taken first."""
        empty = []
        for block in blocks:
            if block is None:
                continue
            self._users[block] -= 1
            if self._users[block]:
                continue
            if self._keys[block] is None:
                empty.append(block)
            else:
                self._free[block] = None
        for block in reversed(empty):
            self._free[block] = None
            self._free.move_to_end(block, last=False)


class _Held:
    """The blocks of a request. keys: what stands in each block. blocks: of each group; None is
    behind a window. filed: how many are. ends: in blocks, before which windows can be hit."""

    __slots__ = ("blocks", "ends", "filed", "keys")

    def __init__(self, keys: list[int], groups: int, end: int) -> None:
        self.keys = keys
        self.ends = [end, 0]
        self.blocks: list[list[int | None]] = [[] for _ in range(groups)]
        self.filed = 0


class OnePoolReplay(Passes):
    """Runs one trace on one pool. hits: tokens of each request when it was first admitted."""

    def __init__(
        self,
        engine: EngineOptions,
        at_once: int,
        trace: Paged,
        blocks: int,
        windows: Sequence[int],
        retention: int | None,
    ) -> None:
        """engine, at_once: see `Passes`. windows: tokens of each group's window; 0: it has none.
        retention: tokens."""
        super().__init__(engine, at_once, trace)
        self.hits: dict[int, int] = {}
        self.pool = BlockPool(blocks)
        self._blocks = blocks
        self._windows, self._retention = windows, retention
        self._size = trace.page_size
        self._held: dict[int, _Held] = {}
        self._unique = 0
        self._last: dict[int, int] = {}  # tokens of a request in the pass that may still run
        deep = 2 if engine.profile.lookahead else 1
        # the most blocks of a window that a request waits for, as vLLM counts them
        self._caps = [
            -(-(window - 1 + deep * engine.token_budget) // self._size) + 1 if window else blocks
            for window in windows
        ]

    def check(self) -> None:
        """Raises AssertionError unless every block is free."""
        assert self.pool.free == self._blocks, f"{self._blocks - self.pool.free} blocks are in use"

    def _arrive(self, one: Request) -> bool:
        end = (one.length - 1) // self._size
        self._held[one.job.index] = _Held(self._keys_of(one), len(self._windows), end)
        return True

    def _keys_of(self, one: Request) -> list[int]:
        """What stands in each block that a request will fill; what nobody else has is below 0."""
        trace, job, size = self._jobs, one.job, self._size
        full = final_length(job) // size
        known = min(int(trace.prompt_pages[job.index]), job.input_length // size)
        keys: list[int] = trace.chain(job)[: full if trace.knows_output else known].tolist()
        own = range(self._unique + len(keys) - full, self._unique)
        self._unique -= len(own)
        return keys + [at - 1 for at in own]

    def _longest(self, keys: Sequence[int], most: int) -> tuple[int, int]:
        """The blocks of the longest prefix that every group can restore, and of the longest that
        one of them could."""
        hit, longest = most, 0
        while True:
            found = hit
            for window in sorted({*self._windows}):
                found = self._restored(window, keys, found)
                longest = max(longest, found)
            if found == hit:
                return hit, longest
            hit = found

    def _restored(self, window: int, keys: Sequence[int], most: int) -> int:
        """The same of the groups with one window."""
        groups = [at for at, one in enumerate(self._windows) if one == window]

        def there(place: int) -> bool:
            return all(self.pool.find((group, keys[place])) is not None for group in groups)

        if not window:
            return next((place for place in range(most) if not there(place)), most)
        needed, run = self._read(window), 0
        for place in range(most - 1, -1, -1):
            run = run + 1 if there(place) else 0
            if run and run >= needed:
                return place + run
        return run

    def _read(self, window: int) -> int:
        """The blocks that a window reads before the end of a block."""
        return -(-(window - 1) // self._size)

    def _kept(self, window: int, place: int, ends: Sequence[int]) -> bool:
        """Whether a block can be hit."""
        if not window or self._retention is None:
            return True
        read, every = self._read(window), self._retention // self._size
        if every and (read >= every or place % every >= every - read):
            return True
        return any(end - read <= place < end for end in ends)

    def _skipped(self, window: int, tokens: int) -> int:
        """The blocks that a window does not read any more after so many tokens."""
        return max(0, tokens - window + 1) // self._size if window else 0

    def _admit(self, one: Request, most: int) -> int:
        held, pool, size = self._held[one.job.index], self.pool, self._size
        hit, longest = self._longest(held.keys, (one.length - 1) // size)
        held.ends[1] = longest if longest > hit else 0
        took = min(one.length - hit * size, most)
        first = [self._skipped(window, hit * size) for window in self._windows]
        found = [
            [pool.find((group, key)) for key in held.keys[skipped:hit]]
            for group, skipped in enumerate(first)
        ]
        shared = sum(map(pool.unused, found))
        every, chunk = (-(-tokens // size) for tokens in (one.length, hit * size + took))
        whole = sum(max(0, min(every, cap) - hit) for cap in self._caps)
        if max(whole, len(self._windows) * (chunk - hit)) + shared > pool.free:
            if not self._running:
                raise CallerError(
                    f"blocks of the device: expected room for {whole + shared} of request "
                    f"{one.job.index} ({one.job.input_length} prompt tokens), found {pool.free}; "
                    "enlarge the pool or leave the request out"
                )
            return 0
        self.hits.setdefault(one.job.index, hit * size)
        for blocks in found:
            pool.share(blocks)
        for group, skipped in enumerate(first):
            held.blocks[group] = [*[None] * skipped, *found[group], *pool.take(chunk - hit)]
        one.held = hit * size
        held.filed = hit
        self._now_held(one, held, took)
        return took

    def _compute(self, one: Request, most: int) -> int:
        held, pool = self._held[one.job.index], self.pool
        took = min(one.length - one.held, most) if one.held < one.length else 1
        ran = one.held - (self._last[one.job.index] if self._engine.profile.lookahead else 0)
        for window, blocks in zip(self._windows, held.blocks, strict=True):
            behind = []
            for place in range(min(self._skipped(window, ran), len(blocks)) - 1, -1, -1):
                if blocks[place] is None:
                    break
                behind.append(blocks[place])
                blocks[place] = None
            pool.give(behind)
        more = -(-(one.held + took) // self._size) - len(held.blocks[0])
        if len(self._windows) * more > pool.free:
            return 0
        for blocks in held.blocks:
            blocks += pool.take(more)
        self._now_held(one, held, took)
        return took

    def _now_held(self, one: Request, held: _Held, took: int) -> None:
        """So many more tokens are computed: full blocks can be hit."""
        one.held += took
        one.generated += one.held >= one.length
        self._last[one.job.index] = took
        full = one.held // self._size
        for group, blocks in enumerate(held.blocks):
            for place in range(held.filed, full):
                block = blocks[place]
                if block is not None and self._kept(self._windows[group], place, held.ends):
                    self.pool.file(block, (group, held.keys[place]))
        held.filed = full

    def _retract(self, one: Request) -> None:
        held = self._held[one.job.index]
        for group, blocks in enumerate(held.blocks):
            self.pool.give(blocks[::-1])
            held.blocks[group] = []
        held.filed = 0

    def _finish(self, one: Request) -> None:
        self._retract(one)
        del self._held[one.job.index], self._last[one.job.index]
