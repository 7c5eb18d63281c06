"""What moves between device, host and storage: eviction, copies, and what fails on the way."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    Admitted,
    Backup,
    Load,
    Prefill,
    Refused,
)
from hicache.core.events import (
    BackupDone,
    EvictWanted,
    FetchDone,
    Flushed,
    LoadDone,
    PrefillDone,
)
from hicache.core.lru import LEAST_SWEPT
from hicache.core.types import PageState, Tier

from .rig import PAGE, Rig, key

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_write_through_backs_up_and_a_host_hit_is_loaded_back() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    assert rig.residency() == {"abcd": "DH"}
    rig.run(1, "wxyz")
    assert rig.residency() == {"abcd": "H", "wxyz": "DH"}
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    assert rig.one(Admitted, outcomes)[1:4] == (0, 3, 0)
    assert prefill.after == (load.flight,)
    assert prefill.tables[0].tolist() == load.copies[0].target.tolist()
    assert rig.device.counts[LENT] == 3
    rig.feed(LoadDone(load.flight))
    rig.feed(PrefillDone(prefill.flight))
    assert rig.residency()["abc"] == "DH"
    assert rig.residency()["abcd"] == "H"


def test_write_back_copies_before_it_evicts() -> None:
    rig = Rig(device=4, host=8, write_policy="write_back")
    rig.run(0, "abcd")
    rig.arrive(1, "wx")
    outcomes = rig.admit(1)
    assert rig.one(Refused, outcomes).reason == "writing_back"
    backup = rig.one(Backup, outcomes)
    assert len(backup.copies[0].source) == 2
    assert rig.one(Refused, rig.admit(1)).reason == "writing_back"
    assert not rig.view.requests[1].admitted
    rig.feed(BackupDone(backup.flight))
    assert rig.one(Admitted, rig.admit(1))
    assert rig.residency() == {"ab": "D", "abcd": "H"}


@pytest.mark.parametrize("chunk", [PAGE, 6, 3 * PAGE, 100])
def test_a_chunked_prompt_is_backed_up_whole(chunk: int) -> None:
    rig = Rig(host=16)
    _, prefill = rig.begin(0, "abcdef", chunk)
    rig.settle([prefill])
    while rig.view.requests[0].computed_tokens < 6 * PAGE:
        rig.settle([rig.continue_prefill(0, chunk)])
    rig.settle(rig.finish(0))
    rig.feed(EvictWanted(Tier.DEVICE, "full", 16))
    assert set(rig.residency().values()) == {"H"}
    assert rig.begin(1, "abcdef")[0].host_pages == 6


def test_queues_do_not_keep_dead_nodes() -> None:
    """The queue of duplicates is never evicted from here; it would remember every node."""
    rig = Rig(device=4, host=8)
    for request in range(3 * LEAST_SWEPT):
        rig.run(request, chr(0x100 + request) * 2)
    live = sum(1 for _ in rig.view.nodes())
    assert live < 10
    assert all(len(rig.view.queue_entries(queue)) <= LEAST_SWEPT for queue in range(3))


def test_a_page_that_was_not_delivered_is_looked_up_again_once_it_is_stored() -> None:
    rig = Rig(16, 16, storage=True)
    digests = key("abcd").page_digests()
    fetch = rig.fetch(rig.lookup(0, "abcd"), 4)
    rig.feed(FetchDone(fetch.flight, 2))
    assert rig.view.distrusted == (digests[2],)
    assert rig.residency() == {"ab": "H"}
    rig.settle(rig.admit(0))
    rig.settle(rig.finish(0))
    assert rig.view.distrusted == ()
    rig.settle(rig.feed(Flushed()))
    assert list(rig.lookup(1, "abcd").digests) == digests
