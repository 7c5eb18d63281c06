"""A store is attached and detached while requests run, and a bad one costs little: no lock, one
notice."""

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import (
    Abandoned,
    Admitted,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    StorageDetached,
)
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    DetachWanted,
    Event,
    EvictWanted,
    Finished,
    PrefetchLimitReached,
    PrefillDone,
)
from hicache.core.types import Tier
from hicache.memory.pools import Arena, stored_pools
from hicache.runtime.driver import Driver, ImmediateExecutor, TieredExecutor
from hicache.runtime.storage import Attachment, StorageExecutor, StoredPages, WorkerOptions
from hicache.storage.base import Status, Storage
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.checksummed import Checksummed
from tests.storage.memory_store import MemoryStore
from tests.tiny import configured

from .rig import PAGE, SMALL, WINDOW, Clock, Gated, context_of, hybrid, until

MODEL = hybrid()
OPEN_FILES = Path("/proc/self/fd")


class Server:
    """Answers prompts without decoding. All arrive first and are admitted one after the other.
    notices: what it would print."""

    def __init__(self, options: WorkerOptions, now: Any = time.monotonic, **changes: Any) -> None:
        names = MODEL.components
        settings = {"components": names, "swa_window": WINDOW, "mamba_interval": PAGE, **changes}
        config = configured(PAGE, (48, 48, 24), (64, 64, 48), **settings)
        host = dict(zip(names, config.host_pages, strict=True))
        pools = stored_pools(Arena(MODEL, PAGE, {Tier.HOST: host}))
        self.notices: list[str] = []
        storage = StorageExecutor()
        self.driver = Driver(Core(config), TieredExecutor(ImmediateExecutor(), storage))
        stored = StoredPages(context_of(MODEL), pools)
        self.attachment = Attachment(
            self.driver, storage, stored, now, self.notices.append, options
        )
        self.requests = 0
        self.prefetched: dict[int, Prefetched] = {}
        self.detached = 0

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        if self.attachment.store is not None:
            self.attachment.detach(force=True)

    def serve(self, prompts: Sequence[Sequence[int]]) -> list[int]:
        """Answer the prompts. Returns how many tokens of each were computed."""
        first = self.requests
        self.requests += len(prompts)
        for request, prompt in enumerate(prompts, first):
            self.feed(Arrived.from_tokens(request, prompt, PAGE))
        answers = [self.answer(request, prompt) for request, prompt in enumerate(prompts, first)]
        self.settle()
        return answers

    def feed(self, event: Event) -> list[Outcome]:
        return self.see(self.driver.feed(event))

    def settle(self) -> None:
        """Until no action is in flight."""
        self.until(lambda: not self.driver.core.view.transfers)

    def until(self, condition: Any) -> None:
        def polled() -> bool:
            if not (done := condition()):
                self.driver.executor.start()
                self.see(self.driver.poll())
            return bool(done)

        until(polled)

    def see(self, outcomes: list[Outcome]) -> list[Outcome]:
        for outcome in outcomes:
            if isinstance(outcome, Prefetched):
                self.prefetched[outcome.request] = outcome
            self.detached += isinstance(outcome, StorageDetached)
        return outcomes

    def forget(self) -> None:
        """Evict everything from device and host."""
        for tier in (Tier.DEVICE, Tier.HOST):
            for index, name in enumerate(MODEL.components):
                pages = self.driver.core.view.pool(tier, index).capacity
                self.feed(EvictWanted(tier, name, pages))
            self.settle()

    def answer(self, request: int, prompt: Sequence[int]) -> int:
        outcomes = self._granted(AdmitWanted(request, len(prompt)))
        [admitted] = [outcome for outcome in outcomes if isinstance(outcome, Admitted)]
        prefill, transfers = outcomes[-1], self.driver.core.view.transfers
        while True:
            assert isinstance(prefill, Prefill)
            self.until(lambda after=prefill.after: not {*after} & {*transfers})
            self.feed(PrefillDone(prefill.transfer))
            if prefill.completes_prompt:
                break
            prefill = self._granted(ContinueWanted(request, len(prompt)))[-1]
        self.feed(Finished.from_tokens(request, prompt, PAGE))
        return admitted.tokens_to_compute

    def _granted(self, event: AdmitWanted | ContinueWanted) -> list[Outcome]:
        """Ask until it is not refused."""
        outcomes: list[Outcome] = []

        def granted() -> bool:
            outcomes[:] = self.feed(event)
            return not isinstance(outcomes[-1], Refused)

        self.until(granted)
        return outcomes


def prompts_of(seed: int) -> list[list[int]]:
    """Prompts that share prefixes."""
    draw = np.random.default_rng(seed)
    roots = [[100 * root + n for n in range(20)] for root in range(3)]
    return [
        roots[draw.integers(0, 3)][: draw.integers(4, 21)]
        + [10_000 + int(draw.integers(0, 3))] * int(draw.integers(1, 14))
        for _ in range(8)
    ]


PROMPTS = prompts_of(1)


def warm(server: Server, store: Storage) -> None:
    """Attach, serve, and lose device and host."""
    server.attachment.attach_store(store)
    server.serve(PROMPTS)
    server.forget()


def locks_of(server: Server) -> int:
    nodes = server.driver.core.view.nodes()
    return sum(len(locks) for node in nodes for tier in node.locks for locks in tier)


def believed(server: Server) -> int:
    view = server.driver.core.view
    return sum(view.believed(node) for node in view.nodes())


def guarded(server: Server, store: MemoryStore, now: Any) -> Checksummed:
    breaker = BreakerOptions(slow_s=SMALL.call_s)
    return Checksummed(
        Breaker(store, "the store", now, server.notices.append, breaker, lambda job: job())
    )


def test_detach_leaves_the_cache_running_and_attach_makes_it_warm_again() -> None:
    first, other = Gated(), Gated()
    with Server(SMALL) as server:
        warm(server, first)
        assert server.attachment.detach() == [StorageDetached()]
        assert server.attachment.wait_closed(10)
        assert first.closed
        cold = server.serve(PROMPTS)
        calls = first.calls
        server.forget()
        server.attachment.attach_store(Checksummed(other))
        assert server.serve(PROMPTS) == cold, "another store has nothing yet"
        server.forget()
        assert sum(server.serve(PROMPTS)) < sum(cold)
        assert first.calls == calls
        assert server.detached == 0, "seen by the caller of detach only"


@pytest.mark.parametrize("force", [False, True])
def test_detach_while_requests_wait_for_a_store_that_hangs(force: bool) -> None:
    """They are served without it at once; nothing waits for the call that hangs."""
    store = Gated()
    with Server(replace(SMALL, call_s=1000)) as server:
        warm(server, Checksummed(store))
        store.kinds = {"read"}
        for request, prompt in enumerate(PROMPTS, 100):
            server.feed(Arrived.from_tokens(request, prompt, PAGE))
        server.requests = 200
        server.until(lambda: store.entered.acquire(blocking=False))
        refused = server.feed(AdmitWanted(100, 40))[-1]
        assert isinstance(refused, Refused)
        assert refused.reason == "fetching"
        outcomes = server.attachment.detach(force)
        assert any(isinstance(outcome, Abandoned) for outcome in outcomes)
        server.see(outcomes)
        server.until(lambda: server.detached)
        assert locks_of(server) == 0
        ended = [prefetched for number, prefetched in server.prefetched.items() if number >= 100]
        assert {prefetched.reason for prefetched in ended} <= {"detached"}
        until(lambda: store.closed)
        for request, prompt in enumerate(PROMPTS, 100):
            server.answer(request, prompt)
        server.settle()
        assert server.detached == 1


def test_an_attach_that_is_refused_or_fails_changes_nothing() -> None:
    store = Gated()
    with Server(SMALL) as server:
        for address in ("nosuch:thing", "plain"):
            with pytest.raises(CallerError, match="storage"):
                server.attachment.attach(address)
        with pytest.raises(CallerError, match="expected an attached one, found none"):
            server.attachment.detach()
        assert not server.driver.core.view.attached
        server.attachment.attach_store(store)
        with pytest.raises(CallerError, match="found one that is attached; detach it first"):
            server.attachment.attach("file:somewhere")
        server.serve(PROMPTS)


def test_a_store_is_closed_if_the_core_refuses_to_attach_it() -> None:
    store = Gated()
    with Server(SMALL, storage=True) as server:
        server.feed(Arrived.from_tokens(0, PROMPTS[0], PAGE))
        server.feed(DetachWanted())
        [refused] = server.attachment.attach_store(store)
        assert isinstance(refused, Refused)
        assert refused.reason == "detaching"
        assert server.attachment.wait_closed(10)
        assert store.closed
        server.settle()
        server.attachment.attach_store(Checksummed(MemoryStore()))


def test_a_store_that_hangs_for_ever_costs_a_request_its_limit_and_never_a_lock() -> None:
    clock, store = Clock(), Gated()
    with Server(SMALL, now=clock, prefetch_policy="timeout") as server:
        warm(server, guarded(server, store, clock))
        store.kinds = {"lookup", "read", "write"}
        for request, prompt in enumerate(PROMPTS, 100):
            server.feed(Arrived.from_tokens(request, prompt, PAGE))
        server.until(lambda: store.entered.acquire(blocking=False))
        for request, prompt in enumerate(PROMPTS, 100):
            server.feed(PrefetchLimitReached(request))
            server.answer(request, prompt)
        assert {server.prefetched[request].reason for request in (100, 101)} == {"late"}
        assert server.notices == []
        clock.now += SMALL.call_s + 1
        server.settle()
        assert locks_of(server) == 0
        assert len(server.notices) == 1, "nobody called it meanwhile"
        server.requests = 200
        for _ in range(4):
            server.serve(prompts_of(7))
            server.forget()
            clock.now += 0.1
        assert len(server.notices) == 1
        assert locks_of(server) == 0


def test_after_an_outage_in_which_it_lost_everything_pages_are_stored_again() -> None:
    clock = Clock()
    with Server(SMALL, now=clock) as server:
        for outages in (1, 2):  # each of another store
            store = MemoryStore()
            guard = guarded(server, store, clock)
            warm(server, guard)
            assert not server.attachment.was_out
            store.answer = Status.FAILED
            server.serve(prompts_of(2))
            assert not server.attachment.was_out, "it is not back yet"
            store.answer = None
            store.values.clear()
            clock.now += 1000
            guard.poll()
            told = ["answers again" in notice for notice in server.notices]
            assert told == [False, True] * outages
            assert server.attachment.was_out
            server.attachment.renew()
            assert not server.attachment.was_out
            assert believed(server) == 0
            server.serve(PROMPTS)
            assert believed(server) > 0
            server.settle()
            assert store.values
            guard.poll()
            guard.corrupt = 3
            lost = server.attachment.losses
            assert (lost.outages, lost.reads_corrupt) == (outages, 3 * outages)
            server.see(server.attachment.detach())
            server.until(lambda: server.detached)
            server.detached = 0
            assert server.attachment.losses == lost, "it is not forgotten with the store"


@pytest.mark.skipif(not OPEN_FILES.exists(), reason="the system does not list open files")
def test_attaching_and_detaching_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    def in_use() -> int:
        return len(list(OPEN_FILES.iterdir()))

    def threads() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name.startswith("storage")}

    others = threads()
    with Server(SMALL) as server:
        before = 0
        for round_ in range(6):
            server.attachment.attach(f"file:{tmp_path}/pages")
            server.serve(PROMPTS[:2])
            server.attachment.detach(force=bool(round_ % 2))
            assert server.attachment.wait_closed(20)
            until(lambda: threads() <= others)
            before = before or in_use()
        assert in_use() <= before
