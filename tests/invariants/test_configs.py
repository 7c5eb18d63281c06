"""Drawn configurations: the smallest legal pools are just that, and each size is drawn; drawn
sequences reach all named states."""

from collections import Counter
from dataclasses import replace

import pytest

from hicache.core.core import Core
from hicache.core.errors import CallerError
from invariants.fuzz.draws import Draws
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import (
    COMPONENTS,
    POLICIES,
    USUAL,
    draw_config,
    least_device_pages,
    sample_config,
)
from invariants.fuzz.hicache.player import STATES

TELLING = (0, 1, 2, 3, 5, 6, 16, 22, 28, 39)  # reach all named states


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


def test_drawn_sequences_reach_every_named_state() -> None:
    seen: Counter[str] = Counter()
    for seed in (*TELLING, *range(150)):
        outcome = play.generate(sample_config(seed), seed, 120, "off")
        assert outcome.failure is None, outcome.failure
        seen += outcome.player.probes.seen
        if {*STATES} <= {*seen}:
            return
    assert not {*STATES} - {*seen}
