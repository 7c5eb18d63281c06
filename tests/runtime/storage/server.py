"""A server on the CPU device whose every byte is checked: a page's bytes follow from the tokens up
to its end, so a pass knows what the pages that it reads must hold.

It answers prompts without decoding. All prompts arrive first and are admitted one after the other.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from hicache.core.actions import Admitted, Outcome, Prefetched, Prefill, Refused, StorageDetached
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    ContinueWanted,
    Event,
    EvictWanted,
    Finished,
    PrefillDone,
)
from hicache.core.types import Key, Pages, Tier
from hicache.devices.base import Access, DeviceOptions
from hicache.devices.cpu import CpuDevice
from hicache.memory.layouts import Words
from hicache.memory.pools import contents_of, stored_pools
from hicache.runtime.controller import COMPUTE, TransferController
from hicache.runtime.driver import Driver, Observer, TieredExecutor
from hicache.runtime.storage import Attachment, StorageExecutor, StoredPages, WorkerOptions
from tests.configs import configured
from tests.patience import PATIENCE_S

from .rig import PAGE, WINDOW, context_of, hybrid

MODEL = hybrid()
DEVICE = {"full": 48, "swa": 48, "mamba": 24}
HOST = {"full": 64, "swa": 64, "mamba": 48}


def config_of(**changes: Any) -> Config:
    names = MODEL.components
    sizes = [tuple(pages[name] for name in names) for pages in (DEVICE, HOST)]
    settings = {"components": names, "swa_window": WINDOW, "mamba_interval": PAGE, **changes}
    return configured(PAGE, *sizes, **settings)


class Server:
    """notices: what it would print."""

    def __init__(
        self,
        options: WorkerOptions | None = None,
        observers: Sequence[Observer] = (),
        now: Any = time.monotonic,
        **changes: Any,
    ) -> None:
        config = config_of(**changes)
        self.seeds: dict[tuple[str, int], int] = {}
        self.notices: list[str] = []
        device, host = (
            dict(zip(MODEL.components, sizes, strict=True))
            for sizes in (config.device_pages, config.host_pages)
        )
        self.device = CpuDevice(MODEL, PAGE, device, host, DeviceOptions(content=self._content))
        self.compute = self.device.stream(COMPUTE)
        storage = StorageExecutor()
        tiered = TieredExecutor(TransferController(self.device), storage)
        self.driver = Driver(Core(config), tiered, observers)
        stored = StoredPages(context_of(MODEL), stored_pools(self.device.table))
        self.attachment = Attachment(
            self.driver, storage, stored, now, self.notices.append, options
        )
        self.plans = contents_of(MODEL, PAGE)
        self.requests = 0
        self.prefetched: dict[int, Prefetched] = {}
        self.detached = 0
        self.checked = 0  # pages whose bytes a pass has compared

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        if self.attachment.store is not None:
            self.attachment.detach(force=True)
        self.device.close()

    def serve(self, prompts: Sequence[Sequence[int]], settle: bool = True) -> list[int]:
        """Answer the prompts. Returns how many tokens of each were computed."""
        first = self.requests
        self.requests += len(prompts)
        for request, prompt in enumerate(prompts, first):
            self.feed(Arrived.from_tokens(request, prompt, PAGE))
        answers = [self.answer(request, prompt) for request, prompt in enumerate(prompts, first)]
        if settle:
            self.settle()
        return answers

    def feed(self, event: Event) -> list[Outcome]:
        return self.see(self.driver.feed(event))

    def settle(self) -> None:
        """Until no action is in flight."""
        while self.driver.core.view.transfers:
            self.poll()

    def poll(self) -> None:
        self.driver.executor.start()
        self.see(self.driver.poll())
        time.sleep(0.0003)

    def until(self, condition: Any) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it did not come"
            self.poll()

    def see(self, outcomes: list[Outcome]) -> list[Outcome]:
        for outcome in outcomes:
            if isinstance(outcome, Prefetched):
                self.prefetched[outcome.request] = outcome
            self.detached += isinstance(outcome, StorageDetached)
        return outcomes

    def forget(self) -> None:
        """Evict everything from device and host."""
        for tier in (Tier.DEVICE, Tier.HOST):
            self.evict(tier)

    def evict(self, tier: Tier) -> None:
        view = self.driver.core.view
        for index, name in enumerate(MODEL.components):
            capacity = view.pool(tier, index).capacity
            self.feed(EvictWanted(tier, name, capacity))
        self.settle()

    def answer(self, request: int, prompt: Sequence[int]) -> int:
        outcomes = self._granted(AdmitWanted(request, len(prompt)))
        [admitted] = [outcome for outcome in outcomes if isinstance(outcome, Admitted)]
        prefill = outcomes[-1]
        while True:
            assert isinstance(prefill, Prefill)
            self._pass(prefill, prompt)
            self.feed(PrefillDone(prefill.transfer))
            if prefill.completes_prompt:
                break
            prefill = self._granted(ContinueWanted(request, len(prompt)))[-1]
        self.feed(Finished.from_tokens(request, prompt, PAGE))
        return admitted.tokens_to_compute

    def _granted(self, event: AdmitWanted | ContinueWanted) -> list[Outcome]:
        """Ask until it is not refused."""
        end = time.monotonic() + PATIENCE_S
        while True:
            outcomes = self.feed(event)
            if not isinstance(outcomes[-1], Refused):
                return outcomes
            assert outcomes[-1].reason in ("fetching", "writing_back", "arriving"), outcomes[-1]
            assert time.monotonic() < end, outcomes[-1]
            self.poll()

    def _pass(self, prefill: Prefill, prompt: Sequence[int]) -> None:
        """Compare what the pass reads, and write what it computes."""
        transfers = self.driver.core.view.transfers
        self.until(lambda: not any(transfer in transfers for transfer in prefill.after))
        first, last = prefill.start_token // PAGE, -(-prefill.end_token // PAGE)
        seeds = seeds_of(prompt)
        for name, table in zip(MODEL.components, prefill.tables, strict=False):
            for depth in range(first):
                if depth < len(table) and table[depth] >= 0 and self._reads(name, depth, first):
                    self._check(name, int(table[depth]), seeds[depth])
            self._write(name, table[first:last], seeds[first:last])
        for slots in prefill.states:
            if slots.source >= 0:
                self._check(slots.component, slots.source, seeds[first - 1])
            for tokens, page in slots.checkpoints:
                self._write(slots.component, np.array([page]), [seeds[tokens // PAGE - 1]])
        self.device.synchronize(self.device.record(self.compute))

    def _reads(self, component: str, depth: int, first: int) -> bool:
        """Whether a pass that begins at page `first` reads the page."""
        window = MODEL.window(component)
        return not window or (depth + 1) * PAGE > first * PAGE - window + 1

    def _write(self, component: str, pages: Pages, seeds: Sequence[int]) -> None:
        pairs = [(int(page), seed) for page, seed in zip(pages, seeds, strict=True) if page >= 0]
        for page, seed in pairs:
            self.seeds[component, page] = seed
        numbers = np.array([page for page, _ in pairs], dtype=np.int64)
        access = Access(component, numbers, "w", (0, MODEL.layers), "prefill")
        self.device.access(self.compute, access)

    def _content(self, component: str, pages: Pages) -> Words:
        return np.array([self.seeds[component, page] for page in pages.tolist()], dtype=np.uint64)

    def _check(self, component: str, page: int, seed: int) -> None:
        """Compare a page with what the model computes for this seed."""
        expected = hashlib.sha256()
        for number, plan in enumerate(self.plans[component]):
            full = plan.stamped(np.array([seed], "u8"), number, range(plan.sizes.layer))
            expected.update(np.ascontiguousarray(full[:, 0]).data)
        digest = self.device.digest(Tier.DEVICE, component, page)
        assert digest == expected.digest(), f"{component} page {page}"
        self.checked += 1


def seeds_of(prompt: Sequence[int]) -> list[int]:
    """By page, a number that follows from the tokens up to its end."""
    padded = [*prompt, *[-1] * (-len(prompt) % PAGE)]
    digests = Key.from_tokens(padded, PAGE).page_digests()
    return [int.from_bytes(digest[:8], "little") for digest in digests]


def prompts_of(seed: int, count: int = 8) -> list[list[int]]:
    """Prompts that share prefixes."""
    draw = np.random.default_rng(seed)
    roots = [[100 * root + n for n in range(20)] for root in range(3)]
    return [
        roots[draw.integers(0, 3)][: draw.integers(4, 21)]
        + [10_000 + int(draw.integers(0, 3))] * int(draw.integers(1, 14))
        for _ in range(count)
    ]
