"""A cache of one's own as a target: the rows of every slot, requests and copies are kept here, and
judged. What an adapter has to say is in `Own`; one with other needs derives from Target itself."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from invariants.fuzz import target as base
from invariants.fuzz.schedules import Job
from invariants.fuzz.script import Recorder


class Cached(NamedTuple):
    """What a cache has on one tier. prefix: all tokens up to its end. slots: of its last tokens."""

    prefix: Sequence[int]
    slots: Sequence[int]
    locked: bool = False


class Copy(NamedTuple):
    """A copy between tiers. what: the cache's own record of it."""

    what: Any
    source: str
    read: Sequence[int]
    target: str
    write: Sequence[int]


class Own(base.Target, ABC):
    """A cache of rows on the tier "device", and perhaps on others, with full attention.

    An adapter has `can` and `draw`, as every target, and these calls. A request is whatever `begin`
    returns.
    """

    def __init__(self, config: base.Config, recorder: Recorder) -> None:
        super().__init__(config, recorder)
        sizes = self.open(config)
        self.rows = {tier: np.full(size, base.UNWRITTEN) for tier, size in sizes.items()}
        self.running: dict[int, tuple[Job, Any]] = {}
        self.copies: list[Copy] = []

    @abstractmethod
    def open(self, config: base.Config) -> dict[str, int]:
        """Makes the cache. Returns the number of slots of each tier."""

    @abstractmethod
    def cached(self, tier: str) -> Iterable[Cached]:
        """All that is cached on a tier, each slot once."""

    @abstractmethod
    def unused(self, tier: str) -> Sequence[int]:
        """The free slots of a tier."""

    @abstractmethod
    def find(self, tokens: Sequence[int]) -> base.Hit:
        """The tokens of a prefix that are on device, and those behind them that are on host."""

    @abstractmethod
    def begin(self, tokens: Sequence[int]) -> Any:
        """Begins a request for a prompt, all of whose tokens but the last may be hit. None: there
        are too few slots."""

    @abstractmethod
    def slots(self, request: Any) -> tuple[Sequence[int] | None, Sequence[int]]:
        """The slots of its prefix, which are the cache's (None: they are not all loaded yet), and
        its own behind them."""

    @abstractmethod
    def grow(self, request: Any, tokens: int) -> bool:
        """Takes slots for so many tokens in all, or more. False: there are too few."""

    @abstractmethod
    def end(self, request: Any, tokens: Sequence[int], keep: bool) -> None:
        """Ends a request. tokens: that were computed; with keep they go into the cache."""

    @abstractmethod
    def evict(self, pool: str, slots: int) -> int:
        """Evicts from a tier. Returns the number of slots that came free at once."""

    def begun(self) -> Iterable[Copy]:
        """The copies that began since the last call."""
        return ()

    def done(self, copy: Any, ok: bool) -> None:
        """A copy has ended; its rows were moved if it is ok. Only copies from device may fail."""

    # -- what the fuzzer calls

    def match(self, job: Job) -> base.Hit:
        hit, page = self.find(job.tokens[:-1]), self.config["page"]
        there = {row for tier in self.rows for row in self._contents(tier)}
        want = [row in there for row in base.chain(job.tokens[:-1]).tolist()] + [False]
        text = f"{want.index(False) // page * page} tokens are cached, {sum(hit)} are found"
        base.need(sum(hit) == want.index(False) // page * page, "MATCH", text)
        return hit

    def _contents(self, tier: str) -> Iterable[int]:
        for cached in self.cached(tier):
            yield from base.chain(cached.prefix)[len(cached.prefix) - len(cached.slots) :].tolist()

    def admit(self, job: Job) -> base.Hit | None:
        hit, request = self.find(job.tokens[:-1]), self.begin(job.tokens)
        if request is None:
            return None
        self.running[job.id], (shared, _) = (job, request), self.slots(request)
        job.computed = sum(hit) if shared is None else len(shared)
        return hit

    def prefill(self, job: Job, until: int) -> bool:
        return self._compute(job, job.tokens[:until], job.computed)

    def decode(self, job: Job, tokens: Sequence[int]) -> bool:
        return self._compute(job, [*job.tokens, *tokens], len(job.tokens))

    def _compute(self, job: Job, tokens: Sequence[int], at: int) -> bool:
        request = self.running[job.id][1]
        if self.slots(request)[0] is None or not self.grow(request, len(tokens)):
            return False
        table = [slot for part in self.slots(request) if part is not None for slot in part]
        self.rows["device"][table[at : len(tokens)]] = base.chain(tokens)[at:]
        return True

    def finish(self, job: Job, keep: bool) -> None:
        self.end(self.running.pop(job.id)[1], job.tokens[: job.computed], keep)

    def retract(self, job: Job) -> None:
        self.finish(job, False)

    abort = retract

    def release_all(self) -> None:
        for tier, rows in self.rows.items():
            self.evict(tier, rows.size)

    def reset(self) -> bool:
        self.release_all()
        return not any(self.cached(tier) for tier in self.rows)

    def transfers(self) -> Sequence[base.Transfer]:
        begun = [*self.begun()]
        self.copies += begun
        kinds = ["Backup" if copy.source == "device" else "Load" for copy in begun]
        pairs = zip(kinds, begun, strict=True)
        return [base.Transfer(kind, copy, kind == "Backup") for kind, copy in pairs]

    def answer(self, transfer: base.Transfer, fault: str) -> None:
        copy = transfer.what
        self.copies.remove(copy)
        if not fault:
            self.rows[copy.target][list(copy.write)] = self.rows[copy.source][list(copy.read)]
        self.done(copy.what, not fault)

    def pools(self) -> Sequence[base.PoolState]:
        return [self._pool(tier) for tier in self.rows]

    def _pool(self, tier: str) -> base.PoolState:
        rows, unused, page = self.rows[tier], list(self.unused(tier)), self.config["page"]
        rows[unused] = base.FREED
        kept, locked = [], 0
        for prefix, slots, lock in self.cached(tier):
            kept.append(
                base.Holding("cache", _array(slots), base.chain(prefix)[len(prefix) - len(slots) :])
            )
            locked += len(slots) * bool(lock)
        for job, request in self.running.values() if tier == "device" else ():
            kept.append(base.Holding(f"request {job.id}", _array(self.slots(request)[1])))
        kept += [
            base.Holding("copy", _array(copy.write)) for copy in self.copies if copy.target == tier
        ]
        free = len(unused) // page
        return base.PoolState(tier, page, rows.size, free, kept, rows, protected=locked)

    def laws(self) -> None:
        """A request reads its own prefix."""
        for job, request in self.running.values():
            shared, own = self.slots(request)
            if shared is not None:
                rows = self.rows["device"][[*shared, *own][: job.computed]]
                wrong = np.flatnonzero(rows != base.chain(job.tokens)[: rows.size])
                text = f"request {job.id} reads another row at position {[*wrong, -1][0]}"
                base.need(not wrong.size, "BYTES", text, "device read")


def _array(slots: Sequence[int]) -> base.Slots:
    return np.array(slots, np.int64)
