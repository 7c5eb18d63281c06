"""Drawn configurations: the smallest legal pools are just that, and each size is drawn."""

from dataclasses import replace

import pytest

from hicache.core.core import Core
from hicache.core.errors import CallerError
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache.draw import (
    COMPONENTS,
    POLICIES,
    USUAL,
    draw_config,
    least_device_pages,
)


@pytest.mark.parametrize("components", COMPONENTS, ids="+".join)
def test_the_core_accepts_the_least_pools_and_nothing_smaller(components: tuple[str, ...]) -> None:
    for seed in range(12):
        draws = Draws(seed, "test")
        config = draw_config(draws, components, draws.choice(POLICIES), "lru", USUAL)
        least = least_device_pages(config)
        Core(replace(config, device_pages=least))
        for at, pages in enumerate(least):
            smaller = (*least[:at], pages - 1, *least[at + 1 :])
            with pytest.raises(CallerError, match="expected at least"):
                Core(replace(config, device_pages=smaller))
