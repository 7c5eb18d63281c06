"""Draws the configuration of the core for a sequence: page size, pools, policies' limits.

Pools come in three sizes. *usual*: small, so that pages are short. *least*: some or all device
pools have the smallest size that the core accepts, and host has none, one or a few pages. *large*:
80 pages and more, in which a tree can grow; such a sequence is also longer. Does not draw
operations, faults or schedules (see swarm).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hicache import registry
from hicache.core.components.base import Shape, residency, settings_for
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from invariants.books.kinds import KNOWN
from invariants.fuzz.draws import Draws

PREFETCHES = tuple(registry.stems(registry.PREFETCH_POLICIES))
USUAL, LEAST, LARGE = "usual", "least", "large"
SIZES = ((USUAL, 80), (LEAST, 12), (LARGE, 8))  # weights
_PAGE_SIZES = ((1, 1, 2, 4, 4, 16, 64), (1, 2, 4))  # tokens; the latter in large pools
_DEVICE_PAGES: dict[str, dict[str, tuple[int, ...]]] = {
    USUAL: {"path": (6, 12, 20, 30, 48, 64), "state": (2, 4, 8, 12, 20, 30)},
    LARGE: {"path": (80, 120, 160), "state": (20, 40, 60)},
}
_BESIDE_A_WINDOW: dict[str, tuple[int, ...]] = {
    USUAL: (0, 1, 3, 8, 20),
    LARGE: (20, 40, 80),
}  # pages
_HOST_PAGES = {
    "path": (0, 1, 5, 12, 30, 60),
    "window": (0, 1, 3, 12, 40),
    "state": (0, 1, 4, 12, 40),
}


def draw_config(
    draws: Draws, components: tuple[str, ...], policy: str, order: str, size: str = USUAL
) -> Config:
    for _ in range(100):
        try:
            return _draw_config(draws, components, policy, order, size)
        except CallerError:
            continue  # an illegal combination: draw again
    raise AssertionError("no legal configuration in a hundred draws")


def least_device_pages(config: Config) -> tuple[int, ...]:
    """Returns the smallest device pool of each component that the core accepts."""
    return tuple(
        next(pages for pages in range(1, most + 1) if _is_legal(config, at, pages))
        for at, most in enumerate(config.device_pages)
    )


def _is_legal(config: Config, at: int, pages: int) -> bool:
    sizes = config.device_pages
    try:
        Core(replace(config, device_pages=(*sizes[:at], pages, *sizes[at + 1 :])))
    except CallerError:
        return False
    return True


def _draw_config(
    draws: Draws, components: tuple[str, ...], policy: str, order: str, size: str
) -> Config:
    page = draws.one(_PAGE_SIZES[size == LARGE])
    window = draws.one(
        (page, 2 * page, page * 3 // 2 or 1, 8 * page, max(1, page // 4), 3 * page + 1)
    )
    interval = page * draws.one((1, 1, 1, 2, 3))
    known = LARGE if size == LARGE else USUAL
    least = -(-window // page) + interval // page
    device = {
        name: least + draws.one(_BESIDE_A_WINDOW[known])
        if residency(name) == "window"
        else draws.one(_DEVICE_PAGES[known][residency(name)])
        for name in KNOWN
    }
    host = _draw_host(draws, device, size)
    backed = host[KNOWN[0]] > 0
    states = any(residency(name) == "state" for name in components)
    on_evict = registry.load(registry.WRITE_POLICIES, policy).policy().on_evict
    exclusive = backed and on_evict and draws.chance(40)
    spare = tuple(host[name] // 2 for name in components)
    config = Config(
        page,
        tuple(device[name] for name in components),
        tuple(host[name] if backed else 0 for name in components),
        components=components,
        write_policy=policy,
        eviction_policy=order,
        load_threshold_pages=draws.one((1, 1, 1, 2)),
        load_quota_pages=draws.one((0, 0, 6)),
        max_backups=draws.one((4096, 4096, 2, 1)),
        exchange_pages=spare if exclusive else (),
        kv_events=draws.chance(30),
        settings=settings_for(
            components, Shape(window, interval, draws.one((0, 0, 1, 2)) if states else 0)
        ),
    )
    return _shrunk(draws, config) if size == LEAST else config


def _draw_host(draws: Draws, device: dict[str, int], size: str) -> dict[str, int]:
    """Half of the hosts are much larger than the device; otherwise loads are rare."""
    if size == LEAST and draws.chance(60):
        pages = draws.below(2)
        return dict.fromkeys(device, pages)
    if draws.chance(50) or size == LARGE:
        return {name: pages * draws.one((2, 4, 8)) for name, pages in device.items()}
    return {name: draws.one(_HOST_PAGES[residency(name)]) for name in device}


def with_storage(draws: Draws, config: Config, least_host: int) -> Config:
    """The configuration with a storage, which in some sequences is attached later, and at least so
    many host pages of each component."""
    page = config.page_size
    return replace(
        config,
        host_pages=tuple(max(least_host, pages) for pages in config.host_pages),
        storage=draws.chance(90),
        prefetch_policy=draws.one(PREFETCHES),
        prefetch_threshold_tokens=draws.one((0, 0, 0, 0, page, page + 1)),
        prefetch_budget_tokens=draws.one((0, 0, 0, 4 * page, 20 * page)),
        max_stores=draws.one((64, 64, 2, 1)),
        store_tries=draws.one((3, 3, 1, 2)),
    )


def with_wants(draws: Draws, config: Config) -> Config:
    """The configuration with what a user may want beside requests: copies that expire, and pins."""
    if draws.chance(50):
        config = replace(config, ttl_periods=draws.one((1, 1, 2, 4)))
    if not draws.chance(60):
        return config
    least = least_device_pages(config)
    pairs = zip(config.device_pages, least, strict=True)
    device = tuple(draws.below(1 + size - one) for size, one in pairs)
    host = tuple(draws.below(1 + size) for size in config.host_pages)
    return replace(config, pin_pages=device, pin_host_pages=host if config.has_host else ())


def _shrunk(draws: Draws, config: Config) -> Config:
    """Gives the smallest legal pool to every component, to those beside the backbone, or to one of
    them. A backbone alone gets it half of the time, since its prompts have one page then.
    """
    every: Sequence[int] = range(len(config.components))
    beside = every[1:]
    chosen = draws.one((every, beside, (draws.one(beside),)) if beside else (every, ()))
    least = least_device_pages(config)
    sizes = (least[at] if at in chosen else config.device_pages[at] for at in every)
    return replace(config, device_pages=tuple(sizes))
