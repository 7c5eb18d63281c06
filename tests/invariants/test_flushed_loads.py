"""COPY-ONCE and EXCLUSIVE do not blame a load whose tree was flushed before its reply."""

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


class Watched:
    """A core beside one check."""

    def __init__(self, check: str, **settings: object) -> None:
        self.core = Core(Config(1, (8,), (8,), **settings))  # type: ignore[arg-type]
        self.watch = Watch("every", checks=[load_check(check)])

    def feed(self, event: Event) -> list[Outcome]:
        self.watch.on_event(event, self.core.view)
        outcomes = self.core.handle(event)
        self.watch.on_outcomes(event, outcomes, self.core.view)
        return outcomes

    def evict(self) -> None:
        self.feed(EvictWanted(Tier.DEVICE, "full", 4))


def flight(kind: type[Outcome], outcomes: list[Outcome]) -> int:
    (found,) = [one for one in outcomes if isinstance(one, kind)]
    return found.flight  # type: ignore[union-attr, no-any-return]


def test_a_load_that_began_before_a_flush_brings_what_host_has_again() -> None:
    watched = Watched("copy_once")
    feed = watched.feed

    def served(request: int) -> None:
        """The prompt is computed and backed up, and leaves the device."""
        feed(Arrived(request, KEY, 4, 4))
        passed = feed(PrefillDone(flight(Prefill, feed(AdmitWanted(request, 4)))))
        feed(BackupDone(flight(Backup, passed)))
        feed(Finished(request, KEY, 4))
        watched.evict()

    served(1)
    feed(Arrived(2, KEY, 4, 4))
    admitted = feed(AdmitWanted(2, 4))
    load = flight(Load, admitted)
    feed(Aborted(2))
    feed(PrefillDone(flight(Prefill, admitted)))
    feed(Flushed())
    served(3)
    feed(LoadDone(load))
    assert not watched.core.view.flights


def test_a_load_that_landed_before_a_flush_gives_up_no_copy_of_the_new_tree() -> None:
    watched = Watched("exclusive", write_policy="write_back", exchange_pages=(1,))
    feed = watched.feed

    def written_back(request: int) -> None:
        """The prompt is computed, and on both tiers when the copy for its eviction has ended."""
        feed(Arrived(request, KEY, 4, 4))
        feed(PrefillDone(flight(Prefill, feed(AdmitWanted(request, 4)))))
        feed(Finished(request, KEY, 4))
        backup = flight(Backup, feed(EvictWanted(Tier.DEVICE, "full", 4)))
        feed(BackupDone(backup))

    written_back(1)
    watched.evict()
    feed(Arrived(2, KEY, 4, 4))
    admitted = feed(AdmitWanted(2, 4))
    load = flight(Load, admitted)
    feed(PrefillDone(flight(Prefill, admitted)))
    feed(Finished(2, KEY, 4))
    feed(Flushed())
    written_back(3)
    feed(LoadDone(load))
    assert not watched.core.view.flights
