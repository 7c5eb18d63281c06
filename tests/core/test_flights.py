"""Flights: for whom each works, what it frees for an eviction, and what comes free when it ends."""

from __future__ import annotations

from hicache.core.actions import NO_REQUEST, Backup, Load, Prefill
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    PrefillDone,
)
from hicache.core.node import Flight
from hicache.core.types import Key, Tier

from .rig import Rig


def flight(rig: Rig, number: int) -> Flight:
    return rig.view.flights[number]


def test_a_backup_that_an_eviction_waits_for_frees_the_pages_that_were_asked_for() -> None:
    rig = Rig(device=8, host=16, write_policy="write_back")
    rig.run(0, "abcdef")
    (backup,) = rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    assert isinstance(backup, Backup)
    found = flight(rig, backup.flight)
    assert (found.evicts, found.frees, found.request) == (True, [4], NO_REQUEST)
    assert rig.view.writing_back() == 4
    before = rig.device.available
    rig.feed(BackupDone(backup.flight))
    assert (rig.view.writing_back(), rig.device.available - before) == (0, 4 + 2)
    assert len(rig.evict("full", 4)) == 1


def test_a_flush_during_an_exchange_takes_its_promise_back() -> None:
    core = Core(Config(1, (8,), (8,), write_policy="write_back", exchange_pages=(4,)))
    key = Key.from_tokens([1, 2, 3], 1)

    def flight_of(event: Event, kind: type) -> int:
        (found,) = (one for one in core.handle(event) if isinstance(one, kind))
        return int(found.flight)

    core.handle(Arrived(0, key, 3, 2))
    core.handle(PrefillDone(flight_of(AdmitWanted(0, 3), Prefill)))
    core.handle(Finished(0, key, 3))
    core.handle(BackupDone(flight_of(EvictWanted(Tier.DEVICE, "full", 3), Backup)))
    core.handle(EvictWanted(Tier.DEVICE, "full", 3))
    core.handle(Arrived(1, key, 3, 2))
    outcomes = core.handle(AdmitWanted(1, 3))
    (load,) = (one.flight for one in outcomes if isinstance(one, Load))
    (prefill,) = (one.flight for one in outcomes if isinstance(one, Prefill))
    assert core.view.giving_up() == 2
    core.handle(Aborted(1))
    core.handle(PrefillDone(prefill))
    core.handle(Flushed())
    core.handle(LoadDone(load))
    assert core.view.giving_up() == 0
