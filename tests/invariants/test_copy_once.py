"""COPY-ONCE does not blame a load whose tree was flushed while it was under way."""

from __future__ import annotations

from hicache.core.actions import Backup, Load, Outcome, Prefill
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
from invariants.base import load_check
from invariants.watch import Watch

KEY = Key.from_tokens([1, 2, 3, 4], 1)


def test_a_load_that_began_before_a_flush_brings_what_host_has_again() -> None:
    core = Core(Config(1, (8,), (8,)))
    watch = Watch("every", checks=[load_check("copy_once")])

    def feed(event: Event) -> list[Outcome]:
        watch.on_event(event, core.view)
        outcomes = core.handle(event)
        watch.on_outcomes(event, outcomes, core.view)
        return outcomes

    def flight(kind: type[Outcome], outcomes: list[Outcome]) -> int:
        (found,) = [one for one in outcomes if isinstance(one, kind)]
        return found.flight  # type: ignore[union-attr, no-any-return]

    def served(request: int) -> None:
        """The prompt is computed and backed up, and leaves the device."""
        feed(Arrived(request, KEY, 4, 4))
        passed = feed(PrefillDone(flight(Prefill, feed(AdmitWanted(request, 4)))))
        feed(BackupDone(flight(Backup, passed)))
        feed(Finished(request, KEY, 4))
        feed(EvictWanted(Tier.DEVICE, "full", 4))

    served(1)
    feed(Arrived(2, KEY, 4, 4))
    admitted = feed(AdmitWanted(2, 4))
    load = flight(Load, admitted)
    feed(Aborted(2))
    feed(PrefillDone(flight(Prefill, admitted)))
    feed(Flushed())
    served(3)
    feed(LoadDone(load))
    assert not core.view.flights
