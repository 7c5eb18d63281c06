"""What a refusal says: which reply to wait for."""

from __future__ import annotations

from hicache.core.actions import Backup, Load, Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    EvictWanted,
    Finished,
    LoadDone,
    PrefillDone,
)
from hicache.core.types import Key, Tier


def key(first: int, pages: int) -> Key:
    return Key.from_page_ids(range(first, first + pages))


def test_pages_on_loan_are_free_with_the_last_flight_that_uses_them() -> None:
    """They counted for the oldest flight, whatever that was: the refused request asked again after
    a reply that freed nothing for it."""
    core = Core(Config(4, (8,)))
    for request in (1, 2):
        core.handle(Arrived(request, key(100 * request, 4), 16, 4))
    (first,) = [one for one in core.handle(AdmitWanted(1, 16)) if isinstance(one, Prefill)]
    (second,) = [one for one in core.handle(AdmitWanted(2, 16)) if isinstance(one, Prefill)]
    core.handle(Aborted(2))
    core.handle(Arrived(3, key(300, 4), 16, 4))
    (refusal,) = core.handle(AdmitWanted(3, 16))
    assert isinstance(refusal, Refused)
    assert (refusal.reason, refusal.after) == ("writing_back", second.flight)
    assert first.flight < second.flight
    core.handle(PrefillDone(second.flight))
    assert any(isinstance(one, Prefill) for one in core.handle(AdmitWanted(3, 16)))


def loading_for_nobody() -> tuple[Core, int, int]:
    """A cache whose device is full of pages that a load brings for a pass. The request of both is
    aborted. Returns the flights of the load and the pass, too."""
    core = Core(Config(4, (3,), host_pages=(8,), write_policy="write_through"))
    prompt = key(0, 3)
    core.handle(Arrived(1, prompt, 12, 3))
    (first,) = [one for one in core.handle(AdmitWanted(1, 12)) if isinstance(one, Prefill)]
    backups = [one for one in core.handle(PrefillDone(first.flight)) if isinstance(one, Backup)]
    core.handle(Finished(1, prompt, 12))
    core.handle(BackupDone(backups[0].flight))
    core.handle(EvictWanted(Tier.DEVICE, "full", 3))
    core.handle(Arrived(2, prompt, 12, 2))
    told = core.handle(AdmitWanted(2, 12))
    (load,) = [one for one in told if isinstance(one, Load)]
    (reader,) = [one for one in told if isinstance(one, Prefill)]
    core.handle(Aborted(2))
    core.handle(Arrived(3, key(300, 2), 8, 2))
    return core, load.flight, reader.flight


def test_what_a_load_brings_for_nobody_is_free_when_no_pass_reads_it_any_more() -> None:
    """It counted as available as soon as it had landed. The refused request came back after the
    load, its pages were evicted in vain, and it was refused again."""
    core, load, reader = loading_for_nobody()
    for reply in (None, LoadDone(load)):
        if reply is not None:
            core.handle(reply)
        (refusal,) = core.handle(AdmitWanted(3, 8))
        assert isinstance(refusal, Refused)
        assert (refusal.reason, refusal.available, refusal.after) == ("writing_back", 0, reader)
    core.handle(PrefillDone(reader))
    assert any(isinstance(one, Prefill) for one in core.handle(AdmitWanted(3, 8)))
