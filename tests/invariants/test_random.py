"""Lives of tiny cores that the fuzzer draws: a sound core passes every check and the specification.

For each set of components and each write policy; the long form is `hicache fuzz`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

import pytest

from hicache.core.actions import Outcome
from hicache.core.events import Event
from hicache.core.types import Tier
from hicache.core.view import CoreView
from hicache.runtime.encoding import event_bytes, outcome_bytes
from invariants.against import Against
from invariants.fuzz.swarm import COMPONENTS, POLICIES, Swarm, draw_swarm
from invariants.watch import AUDIT_EVERY, Level, Watch
from tests.configs import said
from tests.patience import PATIENCE_S
from tests.sampling import sample

from .life import WEIGHTS, Life

ENTRIES = 160
SEEDS = range(12)
SETS = [pytest.param(names, id="-".join(names)) for names in COMPONENTS]
# What the random caller must meet within a few lives, by the names of the probes.
WANTED = (
    "Load of full by AdmitWanted",
    "Load of several nodes",
    "Backup of full by PrefillDone",
    "Backup of several nodes",
    "full demoted from device by EvictWanted",
    "swa demoted from device by EvictWanted",
    "mamba demoted from device by EvictWanted",
    "restarted by LoadDone",
    "restarted by PrefillDone",
    "Granted by PagesWanted",
    "KvRemoved of device",
    "AdmitWanted refused: no_pages of full",
    "AdmitWanted refused: no_pages of swa",
    "AdmitWanted refused: no_pages of mamba",
    "AdmitWanted refused: writing_back of full",
    "AdmitWanted refused: arriving of full",
    "AdmitWanted refused: too_large of full",
    "failed LoadDone",
    "failed BackupDone",
    "failed PrefillDone",
    "aux-only load",
    "Admitted below the known prefix",
)


def swarm_of(seed: int, names: tuple[str, ...] = (), policy: str = "", fail: int = 5) -> Swarm:
    """A drawn corner whose only fault is that actions fail."""
    return replace(draw_swarm(seed, WEIGHTS, names, policy), faults=(("fail", fail),))


@pytest.mark.one_in(8)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("names", SETS)
def test_a_sound_core_passes_every_check(names: tuple[str, ...], policy: str) -> None:
    compared, seeds = 0, sample(SEEDS, 3)
    for seed in seeds:
        life = Life(swarm_of(seed, names, policy), seed)
        against = Against(life.hand.config)
        life.hand.observe_last(against)
        life.run(ENTRIES)
        life.end()
        watch = life.watch
        assert watch.incremental == against.compared == life.hand.events
        assert watch.full >= life.hand.events // AUDIT_EVERY
        assert watch.violations == 0
        compared += against.compared
    assert compared > 20 * len(seeds)


def test_the_seeds_cover_page_and_window_sizes() -> None:
    found = [swarm_of(seed, ("full", "swa")).config for seed in range(48)]
    assert {1, 4, 64} <= {one.page_size for one in found}
    pages = {said(one, "swa_window") / one.page_size for one in found}
    assert {1.0, 8.0} <= pages
    assert any(window % 1 for window in pages), "no multiple of a page"
    assert any(window < 1 for window in pages), "a page larger than the window"


@pytest.mark.one_in(8)
def test_the_random_caller_reaches_the_states_that_matter() -> None:
    seen = dict.fromkeys(WANTED, 0)
    for seed in range(48):
        life = Life(swarm_of(seed, fail=12), seed, Watch("off"), content=False)
        life.run(ENTRIES)
        for name in WANTED:
            seen[name] += life.hand.probes.seen[name]
    assert not [name for name in WANTED if not seen[name]]


@pytest.mark.parametrize("level", ["sampled", "off"])
def test_cheaper_check_levels_run_the_same_sequence(level: Level) -> None:
    dear, cheap = (Life(swarm_of(4), 4, Watch(one)) for one in ("every", level))
    for life in (dear, cheap):
        life.run(400)
        life.end()
    assert cheap.hand.counts == dear.hand.counts
    assert cheap.watch.incremental == 0
    assert bool(cheap.watch.full) == (level == "sampled")


def test_sampled_checks_find_a_leak() -> None:
    life = Life(swarm_of(4), 4, Watch("sampled"))
    while not life.hand.past or not life.core.view.pool(Tier.DEVICE, 0).free:
        life.run(1)
    life.core._state.pools[0][0].take(1, 7)
    with pytest.raises(AssertionError, match="POOL-SUM"):
        life.watch.audit(life.core.view)


@pytest.mark.one_in(8)
def test_two_processes_with_other_hash_seeds_decide_the_same() -> None:
    code = "from tests.invariants.test_random import print_digest; print_digest(seed=5)"
    one, other = (
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE_S,
        ).stdout
        for seed in ("0", "4242")
    )
    assert one == other
    assert int(one.split()[0]) > 600, "events"


def print_digest(seed: int) -> None:
    watch = _Digesting()
    Life(swarm_of(seed), seed, watch).run(600)
    print(watch.incremental, watch.digest.hexdigest())


class _Digesting(Watch):
    """A watch that also hashes all that the core was told and answered."""

    def __init__(self) -> None:
        super().__init__("every")
        self.digest = blake2b()

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.digest.update(event_bytes(event) + outcome_bytes(outcomes))
        super().on_outcomes(event, outcomes, view)
