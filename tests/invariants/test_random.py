"""Thousands of random operations, every check on: a sound core passes all of them."""

from __future__ import annotations

import pytest

from hicache.core.actions import Backup, Load
from hicache.core.config import Config
from hicache.core.events import BackupDone, LoadDone, PrefillDone
from invariants.determinism import Nondeterminism, Trail, python, run_twice
from invariants.watch import AUDIT_EVERY, Watch

from .rig import Rig

POLICIES = ("write_through", "write_through_selective", "write_back")
STEPS = 600


def config_of(seed: int) -> Config:
    """Tiny pools first: every seed is another corner of policy, page size and pool sizes."""
    return Config(
        (1, 4, 64)[seed // 3 % 3],
        ((12, 30, 64)[seed // 9 % 3],),
        ((8, 40, 0, 100, 1, 3)[seed % 6],),
        write_policy=POLICIES[seed % 3],
        load_threshold_pages=1 + seed % 2,
        load_quota_pages=(0, 6)[seed // 2 % 2],
        max_backups=(4096, 2)[seed // 4 % 2],
        kv_events=seed % 2 == 0,
    )


@pytest.mark.parametrize("start", range(0, 108, 9))
def test_a_sound_core_passes_every_check(start: int) -> None:
    for seed in range(start, start + 9):
        rig = Rig(config_of(seed), seed=seed, longest=14)
        rig.run(STEPS)
        rig.drain(empty=True)
        summary = rig.watch.summary()
        assert summary["incremental"] == len(rig.tape)
        assert int(summary["full"]) >= len(rig.tape) // AUDIT_EVERY
        assert summary["violations"] == 0


def test_the_random_caller_reaches_the_states_that_matter() -> None:
    seen: dict[str, int] = {}

    def count(name: str) -> None:
        seen[name] = seen.get(name, 0) + 1

    for seed in range(54):
        rig = Rig(config_of(seed), seed=seed, level="off", longest=14)
        feed = rig.feed

        def spy(event: object, feed: object = feed) -> list[object]:
            outcomes = feed(event)  # type: ignore[operator]
            for item in outcomes:
                count(type(item).__name__)
                if hasattr(item, "reason"):
                    count(item.reason)
                if isinstance(item, Load | Backup) and len(item.copies) > 1:
                    count(f"{type(item).__name__} of several nodes")
                if getattr(item, "demoted", False):
                    count("demoted")
            if isinstance(event, LoadDone | BackupDone | PrefillDone) and not event.ok:
                count(f"failed {type(event).__name__}")
            return outcomes  # type: ignore[no-any-return]

        rig.feed = spy  # type: ignore[method-assign, assignment]
        rig.run(STEPS)
    wanted = {
        "Seated", "Load", "Backup", "Evicted", "demoted", "Restarted", "Granted", "KvRemoved",
        "no_pages", "draining", "arriving", "too_large", "failed LoadDone", "failed BackupDone",
        "failed PrefillDone", "Load of several nodes", "Backup of several nodes",
    }  # fmt: skip
    assert wanted <= seen.keys(), sorted(wanted - seen.keys())


@pytest.mark.parametrize("level", ["sampled", "off"])
def test_cheaper_levels_run_the_same_and_say_what_they_did(level: str) -> None:
    rig = Rig(config_of(4), seed=4, level=level, longest=14)  # type: ignore[arg-type]
    rig.run(STEPS)
    rig.drain()
    summary = rig.watch.summary()
    assert summary["level"] == level
    assert summary["incremental"] == 0
    assert bool(summary["full"]) == (level == "sampled")


def test_sampled_sees_a_leak() -> None:
    rig = Rig(config_of(4), seed=4, level="sampled", longest=14)
    rig.run(100)
    rig.core._state.pools[0][0].take(1, 7)
    with pytest.raises(AssertionError, match="POOL-SUM"):
        rig.watch.audit(rig.core.view)


def test_two_processes_leave_the_same_trail() -> None:
    code = (
        "from tests.invariants.test_random import leave_trail\n"
        "print(*leave_trail(seed=5), sep='\\n')"
    )
    assert len(run_twice(python(code))) > 1


def test_a_trail_that_depends_on_the_hash_seed_is_named() -> None:
    code = "print(*[1, 2, hash('a')], sep='\\n')"
    with pytest.raises(Nondeterminism, match=r"events 513\.\.768") as found:
        run_twice(python(code))
    assert found.value.exit_code == 16


def leave_trail(seed: int) -> list[str]:
    rig, trail = Rig(config_of(seed), seed=seed, longest=14), Trail()
    rig.watch = _Both(rig.watch, trail)  # type: ignore[assignment]
    rig.run(1000)
    return trail.end()


class _Both:
    """Two observers in one place."""

    def __init__(self, watch: Watch, trail: Trail) -> None:
        self._all = (watch, trail)

    def on_event(self, *args: object) -> None:
        for one in self._all:
            one.on_event(*args)  # type: ignore[arg-type]

    def on_outcomes(self, *args: object) -> None:
        for one in self._all:
            one.on_outcomes(*args)  # type: ignore[arg-type]
