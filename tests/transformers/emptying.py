"""Takes what a cache has from its upper tiers, so that the next hit is on a lower one; and a
streamer that acts."""

from collections.abc import Callable

import torch

from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.transformers.cache import PrefixCache

_PATIENCE_S = 60.0


class Streamer:
    """Keeps what it is given, and then acts. act: gets the number of the call, from 1 on."""

    def __init__(self, act: Callable[[int], None] = lambda call: None) -> None:
        self.received: list[list[int]] = []
        self.ended = False
        self._act = act

    def put(self, value: torch.Tensor) -> None:
        self.received.append(value.flatten().tolist())
        self._act(len(self.received))

    def end(self) -> None:
        self.ended = True


def empty_device(cache: PrefixCache) -> None:
    """Evict every page from the device. What is on host stays."""
    assert cache.flush(_PATIENCE_S)
    view = cache._engine.driver.core.view
    with cache._turn():
        for component, pool in zip(view.config.components, view.pools(Tier.DEVICE), strict=True):
            if pool.evictable:
                cache._engine.feed(EvictWanted(Tier.DEVICE, component, pool.evictable))
    assert cache.flush(_PATIENCE_S)


def empty_memory(cache: PrefixCache) -> None:
    """Forget everything but what the store has."""
    assert cache.flush(_PATIENCE_S)
    cache.clear()
