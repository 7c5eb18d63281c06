"""Drawn runs with real bytes and threads, under every check: prompts, evictions, flushes, stores
that come, go and lie. The threads decide on the order of replies, so a seed does not repeat a run
exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hicache import registry
from hicache.core.events import Flushed
from hicache.core.types import Tier
from hicache.memory.layouts import LAYOUTS
from hicache.storage.verified import Verified
from invariants.watch import Watch
from tests.storage.memory_store import MemoryStore

from .rig import SMALL
from .server import Server, prompts_of
from .test_attachment import Lying, Unlucky

STORES = (
    MemoryStore,
    lambda: Lying("flips bits"),
    lambda: Lying("has nothing"),
    lambda: Unlucky("0of1", 5),
    lambda: Unlucky("all", 3),
)
STEPS = ("forget", "forget", "evict device", "flush", "detach", "nothing", "nothing")


@pytest.mark.parametrize("seed", range(4))
def test_no_byte_is_wrong_and_no_check_fails(seed: int) -> None:
    draw = np.random.default_rng(seed)
    store = STORES[draw.integers(0, len(STORES))]()
    watch = Watch("every")
    with Server(
        replace(SMALL, zero_copy=bool(draw.integers(0, 2))),
        (watch,),
        layout=str(draw.choice(list(LAYOUTS))),
        prefetch_policy=str(draw.choice(registry.names(registry.PREFETCH_POLICIES))),
        write_policy=str(draw.choice(registry.names(registry.WRITE_POLICIES))),
        max_stores=int(draw.choice([1, 3, 64])),
        prefetch_budget_tokens=int(draw.choice([0, 16, 64])),
        prefetch_threshold_tokens=int(draw.choice([0, 8])),
        kv_events=True,
    ) as server:
        for _ in range(10):
            if server.attachment.store is None:
                server.attachment.attach_store(Verified(store))
            server.serve(prompts_of(int(draw.integers(0, 4))), settle=bool(draw.integers(0, 2)))
            _take(server, str(draw.choice(STEPS)), force=bool(draw.integers(0, 2)))
        server.settle()
        watch.finish(server.first.driver.core.view)
        assert server.checked


def _take(server: Server, step: str, force: bool) -> None:
    if step == "forget":
        server.settle()
        server.forget()
    elif step == "evict device":
        server.evict(Tier.DEVICE)
    elif step == "flush":
        server.settle()
        server.feed(Flushed(storage=True))
    elif step == "detach":
        before = server.detached
        server.see(server.attachment.detach(force))
        server.until(lambda: server.detached > before)
