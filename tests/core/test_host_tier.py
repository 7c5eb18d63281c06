"""What a core with a host promises and refuses while copies are under way."""

from __future__ import annotations

from hicache.core.actions import Backup, Load, Prefill, Refused
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
from hicache.core.types import Key, Tier


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


def test_a_refusal_names_the_write_back_that_brings_the_last_page() -> None:
    core = Core(Config(1, (2,), (8,), write_policy="write_back"))
    for request, token in ((0, 1), (1, 2)):
        key = Key.from_tokens([token], 1)
        core.handle(Arrived(request, key, 1, 0))
        (_, prefill) = core.handle(AdmitWanted(request, 1))
        core.handle(PrefillDone(prefill.flight))  # type: ignore[union-attr]
        core.handle(Finished(request, key, 1))
    core.handle(Arrived(2, Key.from_tokens([3, 4], 1), 2, 1))
    one, other, refused = core.handle(AdmitWanted(2, 2))
    assert isinstance(one, Backup)
    assert isinstance(other, Backup)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.after) == ("writing_back", other.flight)
