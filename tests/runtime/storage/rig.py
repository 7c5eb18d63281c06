"""Host pools with real bytes, stores that misbehave, and threads that are waited for."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from hicache.core.actions import Fetch, Piece, StorageAction, Store
from hicache.core.events import StorageReply
from hicache.core.types import Key, Pages, Tier
from hicache.memory.pools import Arena, stored_pools
from hicache.models import ModelDescription
from hicache.models.base import PoolDescription
from hicache.runtime.storage import Rank, StoredPages, WorkerOptions, Workers
from hicache.storage.base import Status, Storage, Value
from hicache.storage.checksummed import Checksummed
from hicache.storage.keys import Context
from tests.needs import PATIENCE_S
from tests.storage.memory_store import MemoryStore
from tests.tiny import tiny

PAGE = 4
LAYERS = 3
WINDOW = 6  # tokens, so two pages


def hybrid() -> ModelDescription:
    """Full attention with an indexer, which all ranks have, and a pool without bytes; a window;
    states."""
    [kv] = tiny(LAYERS).pools
    state = {"kind": "state", "parts": ("state",), "page_rows": 1, "window": 1}
    pools = (
        replace(kv, name="full", component="full", layers=(0, 2)),
        PoolDescription("indexer", "full", "indexer", (0, 2), ("key",), 1, 5, anchor="full"),
        PoolDescription("ghost", "full", "logical", (), (), 1, 0, anchor="full"),
        replace(kv, name="swa", component="swa", layers=(1,), window=WINDOW),
        replace(kv, name="mamba", component="mamba", layers=(1,), **state),  # type: ignore[arg-type]
    )
    return replace(tiny(LAYERS), name="small hybrid", pools=pools)


def context_of(model: ModelDescription) -> Context:
    return Context(model.name, "", PAGE, "tokens", model.pools)


SMALL = WorkerOptions(readers=2, writers=2, batch_bytes=600, batch_keys=3)
DIGESTS = tuple(Key.from_tokens(range(16 * PAGE), PAGE).page_digests())


def numbers(*pages: int) -> Pages:
    return np.array(pages, dtype=np.int64)


def piece(component: str, first: int, *pages: int) -> Piece:
    return Piece(component, first, DIGESTS[first : first + len(pages)], numbers(*pages))


def until(condition: Callable[[], bool]) -> None:
    """Wait until something that other threads do is done."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.0005)


class Clock:
    """Seconds that pass only when a test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Gated(MemoryStore):
    """A store whose calls of some kinds hang until `gate` is open. entered: calls that hang."""

    def __init__(self, *kinds: str) -> None:
        super().__init__()
        self.kinds = set(kinds)
        self.gate = threading.Event()
        self.entered = threading.Semaphore(0)
        self.keys: list[str] = []  # that were read or written
        self.closed = False

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        self._pass("lookup")
        return super().lookup(keys)

    def read(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self.keys += keys
        self._pass("read")
        return super().read(keys, values)

    def write(self, keys: Sequence[str], values: Sequence[Value]) -> list[Status]:
        self.keys += keys
        if not keys[0].endswith("/context"):
            self._pass("write")
        return super().write(keys, values)

    def delete(self, keys: Sequence[str]) -> list[Status]:
        self._pass("delete")
        return super().delete(keys)

    def close(self) -> None:
        self.closed = True
        self.gate.set()

    def came_in(self) -> None:
        """Wait until a call hangs."""
        assert self.entered.acquire(timeout=PATIENCE_S)

    def _pass(self, kind: str) -> None:
        if kind in self.kinds:
            self.entered.release()
            assert self.gate.wait(PATIENCE_S)


class Bench:
    """One rank: host pools, threads and a store."""

    def __init__(
        self,
        store: MemoryStore,
        options: WorkerOptions = SMALL,
        rank: Rank | None = None,
        layout: str = "page_first",
        model: ModelDescription | None = None,
        checksummed: bool = True,
    ) -> None:
        model = model or hybrid()
        sizes = dict.fromkeys(model.components, 24)
        tp = rank.ranks if rank else 1
        self.store = store
        self.arena = Arena(model, PAGE, {Tier.HOST: sizes}, layout=layout, tp=tp)
        self.clock = Clock()
        self.pages = StoredPages(context_of(model), stored_pools(self.arena), rank)
        used: Storage = Checksummed(store) if checksummed else store
        self.workers = Workers(used, self.pages, self.clock, options)

    def fill(self, seed: int = 3) -> None:
        """Other bytes in every host page. Ranks have the same in shared pools."""
        draw = np.random.default_rng(seed)
        for component in self.arena.model.components:
            for pool in self.arena.pools(Tier.HOST, component):
                pool.flat[:] = draw.integers(0, 256, len(pool.flat), dtype=np.uint8)

    def answers(self, wanted: int = 1) -> list[StorageReply]:
        """The next answers, as many as wanted."""
        result: list[StorageReply] = []

        def enough() -> bool:
            result.extend(self.workers.poll())
            return len(result) >= wanted

        until(enough)
        return result

    def idle(self) -> None:
        """Wait until no thread has a task."""
        until(
            lambda: (
                not any(
                    calls_of.running or calls_of.queue for calls_of in self.workers._call_queues
                )
            )
        )

    def done(self, *actions: StorageAction) -> list[StorageReply]:
        """The answers to these actions, by transfer."""
        self.workers.begin(actions)
        return sorted(self.answers(len(actions)), key=lambda reply: reply.transfer)

    def store_path(self, pages: int, transfer: int = 1) -> StorageReply:
        """Store a path of so many pages, with the window and the state at its end. The page at
        depth n is host page n."""
        pieces = (
            piece("full", 0, *range(pages)),
            piece("swa", pages - 2, pages - 2, pages - 1),
            piece("mamba", pages - 1, pages - 1),
        )
        [answer] = self.done(Store(transfer, pieces))
        return answer

    def fetch_path(self, pages: int, transfer: int = 2) -> Fetch:
        """A fetch of that path into the host pages from 10 on."""
        pieces = (
            piece("full", 0, *range(10, 10 + pages)),
            piece("swa", pages - 2, 10, 11),
            piece("mamba", pages - 1, 10),
        )
        return Fetch(transfer, 0, 0, pieces, pages)


@contextmanager
def bench(store: MemoryStore | None = None, **settings: object) -> Iterator[Bench]:
    """A bench whose threads end."""
    made = Bench(store or Gated(), **settings)  # type: ignore[arg-type]
    made.fill()
    try:
        yield made
    finally:
        made.workers.close()
        made.store.close()
