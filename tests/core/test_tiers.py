"""What moves between device, host and storage: eviction, copies, and what fails on the way."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    Admitted,
    Backup,
    Cached,
    Evicted,
    Load,
    Prefill,
    Refused,
    Restarted,
)
from hicache.core.events import (
    Aborted,
    BackupDone,
    EvictWanted,
    FetchDone,
    Flushed,
    LoadDone,
    PrefillDone,
)
from hicache.core.radix.lru import LEAST_SWEPT
from hicache.core.types import PageState, Tier

from .rig import PAGE, Rig, key

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_a_request_frees_its_own_duplicates_of_several_nodes() -> None:
    """Found by random operations: from the second node on, the node's own pages were freed."""
    rig = Rig()
    _, late = rig.begin(0, "abcd")
    _, first = rig.begin(1, "abcd", chunk=2 * PAGE)
    rig.feed(PrefillDone(first.flight))
    rig.feed(PrefillDone(rig.continue_prefill(1, 100).flight))
    cached = rig.one(Cached, rig.feed(PrefillDone(late.flight)))
    assert cached.tables[0].tolist() == first.tables[0].tolist()
    assert sorted(rig.device.free_pages().tolist())[:4] == late.tables[0].tolist()


def test_eviction_takes_the_coldest_leaf_from_its_tail() -> None:
    rig = Rig(device=8)
    rig.run(0, "abcd")
    rig.run(1, "xyz")
    _, prefill = rig.begin(2, "mno")
    victims = [outcome for outcome in rig.log if isinstance(outcome, Evicted)]
    assert [len(victim.pages) for victim in victims] == [2]
    assert rig.residency() == {"ab": "D", "xyz": "D"}
    assert set(victims[0].pages.tolist()) < set(prefill.tables[0].tolist())


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


def test_a_prefill_that_ends_before_its_load_is_acknowledged_lands_it() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    rig.run(1, "wxyz")
    load, prefill = rig.load(2, "abc")
    rig.feed(PrefillDone(prefill.flight))
    assert rig.residency()["abc"] == "DH"
    rig.finish(2)
    assert rig.host.protected == 3, "the copy engine may still read its source"
    rig.feed(LoadDone(load.flight))
    assert rig.host.protected == rig.device.protected == 0


def test_a_failed_load_restarts_the_request_without_it() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    rig.run(1, "wxyz")
    load, prefill = rig.load(2, "abc")
    assert rig.one(Restarted, rig.feed(LoadDone(load.flight, ok=False)))
    assert rig.device.counts[RETIRING] == 3, "the pass that waited for it has not ended"
    rig.feed(PrefillDone(prefill.flight, ok=False))
    assert rig.device.counts[RETIRING] == 0
    assert rig.residency()["abc"] == "H"
    assert rig.one(Admitted, rig.admit(2)).host_pages == 0


def test_abort_during_a_load_still_keeps_what_arrives() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    rig.run(1, "wxyz")
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    rig.feed(Aborted(2))
    rig.feed(LoadDone(rig.one(Load, outcomes).flight))
    assert rig.residency()["abc"] == "DH"
    rig.feed(PrefillDone(rig.one(Prefill, outcomes).flight))
    assert rig.device.counts[OWNED] == rig.device.counts[RETIRING] == 0
    assert rig.device.protected == 0


def test_an_arriving_prefix_is_not_loaded_twice() -> None:
    rig = Rig(device=8, host=8)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    rig.arrive(1, "abcx")
    rig.arrive(2, "abcy")
    outcomes = rig.admit(1)
    assert rig.one(Refused, rig.admit(2)).reason == "arriving"
    rig.settle(outcomes)
    assert rig.one(Admitted, rig.admit(2)).device_pages == 3


def test_a_load_that_lands_on_a_copy_made_meanwhile_gives_its_pages_back() -> None:
    rig = Rig(device=8, host=8)
    rig.run(0, "ab")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    rig.arrive(1, "ab")
    loading = rig.admit(1)
    load, late = rig.one(Load, loading), rig.one(Prefill, loading)
    rig.arrive(2, "abcd", match_pages=0)
    _, prefill = rig.one(Admitted, out := rig.admit(2)), rig.one(Prefill, out)
    rig.settle(rig.feed(PrefillDone(prefill.flight)))
    rig.feed(LoadDone(load.flight))
    assert rig.device.counts[RETIRING] == 2, "request 1's pass still reads its own copy"
    cached = rig.one(Cached, rig.feed(PrefillDone(late.flight)))
    assert cached.tables[0].tolist() == prefill.tables[0].tolist()[:2]
    assert rig.device.counts == [4, 0, 4, 0, 0]


@pytest.mark.parametrize(
    ("settings", "loaded"),
    [({}, 4), ({"load_threshold_pages": 5}, 0), ({"load_quota_pages": 3}, 0)],
)
def test_threshold_and_quota_refuse_a_load_as_a_whole(
    settings: dict[str, object], loaded: int
) -> None:
    rig = Rig(device=8, host=8, **settings)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    admitted, _ = rig.begin(1, "abcde")
    assert (admitted.device_pages, admitted.host_pages) == (0, loaded)


def test_selective_backs_up_at_the_second_use() -> None:
    rig = Rig(host=16, write_policy="write_through_selective")
    rig.run(0, "ab")
    assert rig.residency() == {"ab": "D"}
    rig.run(1, "abc")
    assert rig.residency() == {"ab": "DH", "abc": "D"}


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


def test_write_back_waits_for_the_prefix_above_a_copy_under_way() -> None:
    """Found against a reference LRU: a warmer leaf was evicted in the place of a draining leaf's
    parent."""
    rig = Rig(device=4, host=8, write_policy="write_back")
    rig.run(0, "a")
    rig.run(1, "abc")
    rig.run(2, "x")
    rig.arrive(3, "mno")
    backup = rig.one(Backup, rig.admit(3))
    assert [len(copy.source) for copy in backup.copies] == [2]
    assert rig.residency() == {"a": "D", "abc": "D", "x": "D"}
    rig.feed(BackupDone(backup.flight))
    rig.settle(rig.admit(3))
    rig.settle(rig.admit(3))
    assert rig.residency() == {"a": "H", "abc": "H", "mno": "D", "x": "D"}


def test_write_back_drops_pages_that_host_has_no_room_for() -> None:
    rig = Rig(device=4, host=1, write_policy="write_back")
    rig.run(0, "abcd")
    assert rig.begin(1, "wx")
    assert rig.residency() == {"ab": "D"}


def test_a_failed_backup_is_tried_again_at_the_next_use() -> None:
    rig = Rig(host=16)
    _, prefill = rig.begin(0, "ab")
    outcomes = rig.feed(PrefillDone(prefill.flight))
    outcomes = rig.feed(BackupDone(rig.one(Backup, outcomes).flight, ok=False))
    assert rig.residency() == {"ab": "D"}
    assert rig.host.free == 16
    rig.settle(rig.finish(0))
    assert rig.residency() == {"ab": "DH"}


def test_a_child_is_not_published_on_host_without_its_parent() -> None:
    rig = Rig(host=16)
    _, prefill = rig.begin(0, "abcd", chunk=8)
    first = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    second = rig.one(Backup, rig.feed(PrefillDone(rig.continue_prefill(0, 100).flight)))
    rig.feed(BackupDone(first.flight, ok=False))
    rig.feed(BackupDone(second.flight))
    assert rig.residency() == {"ab": "D", "abcd": "D"}
    assert rig.host.free == 16


def test_a_split_under_a_backup_publishes_both_halves() -> None:
    rig = Rig(host=16)
    _, prefill = rig.begin(0, "abcd")
    backup = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    rig.begin(1, "abxy")
    rig.feed(BackupDone(backup.flight))
    assert rig.residency() == {"ab": "DH", "abcd": "DH"}
    assert all(not node.legs for node in rig.view.nodes())


def test_host_evicts_host_only_leaves_before_duplicates() -> None:
    rig = Rig(device=4, host=6)
    rig.run(0, "ab")
    rig.run(1, "xy")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    assert rig.residency() == {"ab": "H", "xy": "DH"}
    rig.run(2, "mn")
    rig.run(0, "xy")
    rig.feed(EvictWanted(Tier.HOST, "full", 3))
    assert "ab" not in rig.residency()
    assert sum(side == "DH" for side in rig.residency().values()) >= 1


def test_a_source_being_loaded_is_not_evicted_from_host() -> None:
    rig = Rig(device=8, host=4)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    rig.arrive(1, "abcdwxyz")
    outcomes = rig.admit(1)
    rig.feed(EvictWanted(Tier.HOST, "full", 4))
    assert rig.residency() == {"abcd": "H"}
    rig.settle(outcomes)
    assert rig.residency()["abcd"] == "DH"


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


def test_a_small_host_does_not_fill_with_duplicates() -> None:
    rig = Rig(device=16, host=4)
    rig.run(0, "abcd")
    rig.run(1, "wxyz")
    assert rig.residency() == {"abcd": "D", "wxyz": "DH"}


@pytest.mark.one_in(32)
def test_queues_do_not_keep_dead_nodes() -> None:
    """The queue of duplicates is never evicted from here; it would remember every node."""
    rig = Rig(device=4, host=8)
    for request in range(3 * LEAST_SWEPT):
        rig.run(request, chr(0x100 + request) * 2)
    live = sum(1 for _ in rig.view.nodes())
    assert live < 10
    assert all(len(rig.view.queue_entries(queue)) <= LEAST_SWEPT for queue in range(3))


def test_a_host_copy_is_not_published_above_a_locked_one() -> None:
    """Found in review: the copy was unlocked but out of eviction's reach, and the count of what
    could be evicted promised its page."""
    rig = Rig(device=8, host=2, write_policy="write_back")
    rig.run(0, "ab")
    rig.run(1, "x")
    evict = EvictWanted(Tier.DEVICE, "full", 1)
    rig.feed(BackupDone(rig.one(Backup, rig.feed(evict)).flight))
    rig.feed(evict)
    drain = rig.one(Backup, rig.feed(evict))
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    assert rig.one(Load, outcomes)
    rig.feed(BackupDone(drain.flight))
    assert rig.host.evictable == 0
    rig.feed(evict)
    rig.settle(outcomes)


def test_pages_that_host_refused_are_dropped_at_the_next_eviction() -> None:
    """Found in review: with a host link that always fails, the same leaf drained for ever."""
    rig = Rig(device=4, host=8, write_policy="write_back")
    rig.run(0, "abcd")
    rig.arrive(1, "wxyz")
    backup = rig.one(Backup, rig.admit(1))
    rig.feed(BackupDone(backup.flight, ok=False))
    assert rig.one(Admitted, rig.admit(1))
    assert rig.host.free == 8


def test_a_refusal_waits_for_a_landed_load_without_reply() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    load, prefill = rig.load(2, "abcd")
    rig.feed(PrefillDone(prefill.flight))
    rig.finish(2)
    assert rig.refusal(3, "mnop").reason == "writing_back", "the load still locks what is above it"
    rig.feed(LoadDone(load.flight))
    assert rig.one(Admitted, rig.admit(3))


def test_a_request_that_recomputes_anyway_does_not_wait_for_a_load() -> None:
    rig = Rig(device=16, host=8, load_quota_pages=2)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    rig.arrive(1, "ab", match_pages=2)
    assert rig.one(Load, rig.admit(1))
    admitted, _ = rig.begin(2, "abcdx")
    assert (admitted.device_pages, admitted.host_pages) == (0, 0)


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
