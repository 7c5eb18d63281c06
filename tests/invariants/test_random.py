"""Lives of tiny cores that the fuzzer draws: a sound core passes every check and the specification.

For each set of components and each write policy; the long form is `hicache fuzz`.
"""

from dataclasses import replace

import pytest

from hicache.core.types import Tier
from invariants.checker import AUDIT_EVERY, Checker
from invariants.differential import DifferentialChecker
from invariants.fuzz.hicache.draw import COMPONENTS, POLICIES, ConfigSample, sample_config

from .life import Life

ENTRIES = 160
SEEDS = range(2)
SETS = [pytest.param(names, id="-".join(names)) for names in COMPONENTS]


def sample_of(
    seed: int, names: tuple[str, ...] = (), policy: str = "", fail: int = 5
) -> ConfigSample:
    """A drawn corner whose only fault is that actions fail."""
    return replace(sample_config(seed, names, policy), faults=(("fail", fail),))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("names", SETS)
def test_a_sound_core_passes_every_check(names: tuple[str, ...], policy: str) -> None:
    compared = 0
    for seed in SEEDS:
        life = Life(sample_of(seed, names, policy), seed)
        differential = DifferentialChecker(life.player.config)
        life.player.observe(differential)
        life.run(ENTRIES)
        life.end()
        checker = life.checker
        assert checker.incremental == differential.compared == life.player.events
        assert checker.full >= life.player.events // AUDIT_EVERY
        assert checker.violations == 0
        compared += differential.compared
    assert compared > 20 * len(SEEDS)


def test_sampled_checks_find_a_leak() -> None:
    life = Life(sample_of(4), 4, Checker("sampled"))
    while not life.player.past or not life.core.view.pool(Tier.DEVICE, 0).free:
        life.run(1)
    life.core._state.pools[0][0].take(1, 7)
    with pytest.raises(AssertionError, match="POOL-SUM"):
        life.checker.audit(life.core.view)
