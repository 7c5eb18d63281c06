"""Takes what a cache has from its upper tiers, so that the next hit is on a lower one."""

from __future__ import annotations

from hicache.core.events import EvictWanted
from hicache.core.types import Tier
from hicache.transformers.cache import PrefixCache

_PATIENCE_S = 60.0


def empty_device(cache: PrefixCache) -> None:
    """Evict every page from the device. What is on host stays."""
    assert cache.flush(_PATIENCE_S)
    view = cache._ongoing.driver.core.view
    with cache._turn():
        for component, pool in zip(view.config.components, view.pools(Tier.DEVICE), strict=True):
            if pool.evictable:
                cache._ongoing.feed(EvictWanted(Tier.DEVICE, component, pool.evictable))
    assert cache.flush(_PATIENCE_S)


def empty_memory(cache: PrefixCache) -> None:
    """Forget everything but what the store has."""
    assert cache.flush(_PATIENCE_S)
    cache.clear()
