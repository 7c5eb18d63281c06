"""Every check sees its planted fault, under its own name and exit code; sound cores stay silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hicache.core import admission, backup, eviction, insertion, reclaim, transfers, tree
from hicache.core.config import Config
from hicache.core.events import Flushed
from hicache.core.policies.lru import Lru
from invariants.base import CRASH, HARNESS, HarnessFault, Violation, check_names, load_check
from invariants.watch import Watch

from .faults import FAULTS, Fault
from .rig import Rig


def tiny(page_size: int = 4, policy: str = "write_through") -> Config:
    return Config(page_size, (24,), (60,), write_policy=policy, kv_events=True)


def spoil(rig: Rig, fault: Fault, after: int = 30) -> list[bool]:
    """Plants the fault behind the rig's core, at the first operation past `after` that fits."""
    handle, done = rig.core.handle, []
    state = rig.core._state

    class Spoiled:
        view = rig.core.view

        @staticmethod
        def handle(event: Any) -> list[Any]:
            outcomes = handle(event)
            if not done and len(rig.tape) > after and fault(state, event, outcomes):
                done.append(True)
            return outcomes

    rig.core = Spoiled()  # type: ignore[assignment]
    return done


def run_until_found(fault: Fault, names: list[str], seeds: range) -> Violation | None:
    for seed in seeds:
        rig = Rig(tiny(), seed=seed, longest=12)
        rig.watch = Watch("every", f"seed {seed}", [load_check(name) for name in names])
        done = spoil(rig, fault)
        try:
            rig.run(400)
            rig.settle()
            while not done and not any(job.state != "waiting" for job in rig.jobs.values()):
                rig.feed(Flushed())
            rig.drain()
        except Violation as found:
            return found
        except Exception:
            if not done:
                raise
    return None


def test_every_check_has_a_planted_fault() -> None:
    assert sorted(FAULTS) == check_names()


@pytest.mark.parametrize("name", check_names())
def test_a_planted_fault_is_found_by_its_check(name: str) -> None:
    check = load_check(name)
    found = run_until_found(FAULTS[name], [name], range(12))
    assert found is not None, "planted, not found"
    assert (found.check, found.exit_code) == (check.name, check.kind)
    report = found.report()
    assert check.sentence in report
    assert "replay: seed " in report
    assert any(letter.isdigit() for letter in found.equation)


def test_names_follow_the_files() -> None:
    for name in check_names():
        assert load_check(name).name.lower() == name
        assert load_check(name).sentence.endswith((".", ")."))


def test_a_change_that_the_core_does_not_own_up_to_is_a_harness_fault() -> None:
    def forget(state: Any, event: Any, outcomes: list[Any]) -> bool:
        fresh = [node for node in state.touched.values() if node.id == state.next_node - 1]
        for node in fresh:
            del state.touched[node.id]
        return bool(fresh)

    rig = Rig(tiny(), seed=1, longest=12)
    rig.watch = Watch("every", "seed 1", [])
    done = spoil(rig, forget)
    while not done:
        rig.step()
    with pytest.raises(HarnessFault) as found:
        rig.watch.audit(rig.core.view)
    assert found.value.exit_code == HARNESS


# Mutants of the core: each patch puts a bug of the kind users have met into the real code, and all
# checks together must stop the run.


def _keep_locks(state: Any, receipt: Any) -> None:
    receipt.locked.clear()


def _forget_backup_lock(state: Any, flight: Any, ok: bool) -> None:
    if not ok:
        flight.receipt = None
    _LAND_BACKUP(state, flight, ok)


def _publish_failed_backup(state: Any, flight: Any, ok: bool) -> None:
    _LAND_BACKUP(state, flight, True)


def _adopt_failed_load(state: Any, flight: Any) -> None:
    transfers.land(state, flight)


def _split_without_locks(state: Any, node: Any, at: int) -> Any:
    upper = _SPLIT(state, node, at)
    for tier in (0, 1):
        upper.holders[tier][0].clear()
    return upper


def _evict_too_much(state: Any, count: int) -> bool:
    reclaim.evict_device(state, count + 3)
    return bool(state.pools[0][0].free >= count)


def _hottest_first(self: Lru, node: Any) -> int:
    return -node.last_use


def _keep_duplicates(state: Any, request: Any, path: list[Any]) -> None:
    table = request.table
    _JOIN(state, request, path)
    request.table = table


def _no_source_lock(state: Any, flight: Any, path: list[Any]) -> None:
    flight.receipt = transfers.open_receipt(state, "load")


def _drop_keeps_node(state: Any, node: Any, tier: Any, pages: int) -> None:
    eviction.vacate(state, eviction.tail(state, node, pages), tier, demoted=False)


_LAND_BACKUP, _SPLIT, _JOIN = backup.land_backup, tree.split, insertion.join

MUTANTS: dict[str, list[tuple[Any, str, Callable[..., Any]]]] = {
    "release forgets": [(admission, "release", _keep_locks)],
    "failed backup keeps its lock": [("core", "land_backup", _forget_backup_lock)],
    "failed backup is published": [("core", "land_backup", _publish_failed_backup)],
    "failed load is adopted": [("core", "cancel_load", _adopt_failed_load)],
    "split loses locks": [
        (module, "split", _split_without_locks) for module in ("matching", "eviction")
    ],
    "eviction overshoots": [(admission, "make_device_room", _evict_too_much)],
    "hottest goes first": [(Lru, "rank", _hottest_first)],
    "duplicates stay in the table": [(insertion, "join", _keep_duplicates)],
    "load does not lock its source": [(admission, "lock_for_load", _no_source_lock)],
    "drop leaves an empty node": [(reclaim, "drop", _drop_keeps_node)],
}


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_of_the_core_is_killed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for where, attribute, replacement in MUTANTS[name]:
        target = f"hicache.core.{where}.{attribute}" if isinstance(where, str) else None
        if target is not None:
            monkeypatch.setattr(target, replacement)
        else:
            monkeypatch.setattr(where, attribute, replacement)
    codes = set()
    for seed in range(30):
        policy = ("write_through", "write_back")[seed % 2]
        rig = Rig(tiny(policy=policy), seed=seed, longest=12, fail_percent=15)
        try:
            rig.run(300)
            rig.drain(empty=True)
        except Violation as found:
            codes.add(found.exit_code)
            break
        except AssertionError:  # the core's own asserts see some of them first
            codes.add(CRASH)
    assert codes - {CRASH}, f"no check saw it in 30 seeds; the core asserted: {bool(codes)}"
