"""Lives of tiny cores that the fuzzer draws: a sound core passes every check and the specification.

For each set of components and each write policy; the long form is `hicache fuzz`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from hicache.core.types import Tier
from invariants.against import Against
from invariants.fuzz.hicache.draw import COMPONENTS, POLICIES, Swarm, draw_swarm
from invariants.watch import AUDIT_EVERY, Watch

from .life import Life

ENTRIES = 160
SEEDS = range(2)
SETS = [pytest.param(names, id="-".join(names)) for names in COMPONENTS]


def swarm_of(seed: int, names: tuple[str, ...] = (), policy: str = "", fail: int = 5) -> Swarm:
    """A drawn corner whose only fault is that actions fail."""
    return replace(draw_swarm(seed, names, policy), faults=(("fail", fail),))


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("names", SETS)
def test_a_sound_core_passes_every_check(names: tuple[str, ...], policy: str) -> None:
    compared = 0
    for seed in SEEDS:
        life = Life(swarm_of(seed, names, policy), seed)
        against = Against(life.hand.config)
        life.hand.observe(against)
        life.run(ENTRIES)
        life.end()
        watch = life.watch
        assert watch.incremental == against.compared == life.hand.events
        assert watch.full >= life.hand.events // AUDIT_EVERY
        assert watch.violations == 0
        compared += against.compared
    assert compared > 20 * len(SEEDS)


def test_sampled_checks_find_a_leak() -> None:
    life = Life(swarm_of(4), 4, Watch("sampled"))
    while not life.hand.past or not life.core.view.pool(Tier.DEVICE, 0).free:
        life.run(1)
    life.core._state.pools[0][0].take(1, 7)
    with pytest.raises(AssertionError, match="POOL-SUM"):
        life.watch.audit(life.core.view)
