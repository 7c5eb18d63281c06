"""Draws the sequences of a model: the fuzzer's, with the model's components and sizes.

Pools are small, so that everything is evicted, loaded and healed; prompts have up to about a
hundred tokens. Does not play sequences.
"""

from __future__ import annotations

from dataclasses import replace

from hicache.core.components.base import ComponentSettings, residency
from hicache.core.config import Config
from hicache.transformers.describing import Described
from invariants.fuzz.configs import least_device_pages, with_storage
from invariants.fuzz.draws import Draws
from invariants.fuzz.swarm import LEAST_HOST, OF_STORAGE, STORAGE_FAULTS, Swarm, draw_swarm

from .subjects import Subject

USUAL_PAGE_TOKENS, LONG = 8, 15  # of all page sizes, larger ones are drawn in so many percent
ROOMY = 64  # pages that are enough for any window
POOL_TOKENS = 400  # of the largest device pool
STORED = 50  # percent of the sequences with a host that have a storage, beside those of the fuzzer
BESIDE = (0, 1, 3, 8, 20, 40)  # pages for windows, beside the least
# Weights of operations where the fuzzer's would give few passes: requests live longer here.
WEIGHTS = {
    "arrive": 10,
    "admit": 30,
    "prefill": 30,
    "grow": 60,
    "wait": 30,
    "finish": 6,
    "revisit": 12,
    "interrupt": 10,
    "warm": 14,
    "evict": 5,
    "erode": 2,
    "hoard": 1,
    "abort": 1,
    "match": 1,
    "restart": 2,
    "attach": 2,
}


def draw(
    subject: Subject,
    seed: int,
    weights: dict[str, int],
    faults: bool,
    eviction: str = "",
    wanted: bool = False,
) -> Swarm:
    """The swarm of a seed. faults: whether actions may fail. eviction: the policy, if it is given.
    wanted: with pins or copies that expire."""
    draws = Draws(seed, "model", subject.settings.family)
    usual = [size for size in subject.page_sizes if size <= USUAL_PAGE_TOKENS]
    sizes = usual if usual and not draws.chance(LONG) else subject.page_sizes
    described = subject.described(draws.one(sizes))
    swarm = draw_swarm(
        seed,
        weights,
        described.components,
        ranks=1,
        executor="replies",
        eviction=eviction,
        wanted=wanted,
    )
    config, on = _fitted(draws, swarm.config, described), swarm.weights
    if config.has_host and not config.storage and draws.chance(STORED):
        config = with_storage(draws, config, LEAST_HOST)
        config = replace(config, storage=True)
        known = dict(on)
        on += tuple(one for one in OF_STORAGE if one[0] not in known)
    if config.storage:
        on += (("restart", 1),)
    on = tuple((name, WEIGHTS.get(name, weight) * draws.one((1, 1, 2))) for name, weight in on)
    kinds: tuple[tuple[str, int], ...] = ()
    if faults:
        kinds = swarm.faults
        known = dict(kinds)
        if "torn" not in known:
            kinds += (("torn", draws.one((2, 5, 20))),)
        if config.storage:
            kinds += tuple(
                (name, draws.one((2, 5, 20)))
                for name in STORAGE_FAULTS
                if name not in known and draws.chance(8)
            )
    return replace(
        swarm,
        config=config,
        weights=on,
        faults=kinds,
        executor=subject.settings.executor,
        pairs=False,
        longer=1,
    )


def _fitted(draws: Draws, config: Config, described: Described) -> Config:
    """The configuration with the model's page size and windows."""
    page = described.page_size
    states = (page * draws.one((1, 1, 2, 3)), draws.one((0, 0, 0, 2)))
    roomy = replace(
        config,
        page_size=page,
        device_pages=(ROOMY,) * len(config.components),
        settings=settings_of(described, *states),
        exchange_pages=(),
        pin_pages=(),
        pin_host_pages=(),
        prefetch_budget_tokens=config.prefetch_budget_tokens // config.page_size * page,
    )
    most = max(6, POOL_TOKENS // page)
    least = least_device_pages(roomy)
    device = tuple(
        one + draws.one(BESIDE) if residency(name) == "window" else max(one, min(most, pages))
        for name, one, pages in zip(config.components, least, config.device_pages, strict=True)
    )
    spare = tuple(size - one for size, one in zip(device, least, strict=True))
    return replace(
        roomy,
        device_pages=device,
        exchange_pages=config.exchange_pages,
        pin_pages=_clamped(config.pin_pages, spare),
        pin_host_pages=config.pin_host_pages,
    )


def settings_of(
    described: Described, interval_tokens: int = 0, states_per_path: int = 0
) -> tuple[ComponentSettings, ...]:
    """The settings of the components, as the model's description says."""
    pages = dict.fromkeys(described.components, ROOMY)
    return described.config(pages, pages, interval_tokens, states_per_path).settings


def _clamped(pages: tuple[int, ...], most: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(min(one, size) for one, size in zip(pages, most, strict=bool(pages)))
