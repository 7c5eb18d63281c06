"""A request's life through the core, step by step, with every reply in the test's hand."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    Backup,
    Cached,
    Evicted,
    Granted,
    KvRemoved,
    KvStored,
    Load,
    Matched,
    Prefill,
    Refused,
    Released,
    Restarted,
    Seated,
)
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    Arrived,
    BackupDone,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.lru import LEAST_SWEPT
from hicache.core.types import Key, PageState, Tier

from .rig import PAGE, Rig, key, tokens

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_a_second_request_reuses_the_shared_prefix() -> None:
    rig = Rig()
    assert rig.run(0, "abcd").device_pages == 0
    assert rig.run(1, "abxy").device_pages == 2
    assert rig.residency() == {"ab": "D", "abcd": "D", "abxy": "D"}


def test_arrival_and_probe_change_nothing() -> None:
    rig = Rig()
    rig.run(0, "abcd")
    before = rig.residency(), rig.view.tick
    matched = rig.one(Matched, rig.arrive(1, "abx"))
    assert (matched.device_pages, matched.host_pages) == (2, 0)
    assert rig.one(Matched, rig.feed(MatchWanted(1))) == matched
    assert (rig.residency(), rig.view.tick) == before


def test_the_last_page_is_recomputed_where_the_engine_asks_for_it() -> None:
    rig = Rig()
    rig.run(0, "abcd")
    rig.arrive(1, "abcd", match_pages=3)
    outcomes = rig.settle(rig.admit(1))
    assert rig.one(Prefill, outcomes).start == 3 * PAGE
    # The recomputed page is a duplicate of the tree's; it was freed.
    assert rig.one(Cached, outcomes).table.tolist() == [0, 1, 2, 3]
    assert rig.device.free == 12


def test_namespaces_share_nothing() -> None:
    rig = Rig()
    rig.run(0, "ab")
    rig.arrive(1, "ab", namespace="tenant")
    assert rig.one(Seated, rig.admit(1)).device_pages == 0


def test_a_partial_page_is_never_cached() -> None:
    rig = Rig()
    rig.arrive(0, "ab", length=2 * PAGE + 3)
    outcomes = rig.settle(rig.admit(0))
    assert len(rig.one(Prefill, outcomes).table) == 3
    assert rig.one(Cached, outcomes).pages == 2
    rig.finish(0)
    assert rig.device.free == 14


def test_chunks_enter_the_tree_one_by_one() -> None:
    rig = Rig()
    _, first = rig.seat(0, "abcd", chunk=6)
    assert (first.start, first.end, first.last) == (0, 6, False)
    rig.feed(PrefillDone(first.flight))
    assert rig.residency() == {"a": "D"}
    second = rig.proceed(0, 100)
    assert (second.start, second.end, second.last) == (6, 16, True)
    rig.feed(PrefillDone(second.flight))
    assert rig.residency() == {"a": "D", "abcd": "D"}


def test_two_requests_that_compute_the_same_prefix_keep_one_copy() -> None:
    rig = Rig()
    _, first = rig.seat(0, "abc")
    _, second = rig.seat(1, "abd")
    rig.feed(PrefillDone(first.flight))
    cached = rig.one(Cached, rig.feed(PrefillDone(second.flight)))
    assert cached.table.tolist()[:2] == first.table.tolist()[:2]
    assert second.table.tolist()[:2] == [3, 4], "the table that was handed out is a snapshot"
    assert rig.device.counts == [12, 0, 4, 0, 0]


def test_duplicates_of_several_nodes_are_all_the_requests_own() -> None:
    """Found by random operations: from the second node on, the node's own pages were freed."""
    rig = Rig()
    _, late = rig.seat(0, "abcd")
    _, first = rig.seat(1, "abcd", chunk=2 * PAGE)
    rig.feed(PrefillDone(first.flight))
    rig.feed(PrefillDone(rig.proceed(1, 100).flight))
    cached = rig.one(Cached, rig.feed(PrefillDone(late.flight)))
    assert cached.table.tolist() == first.table.tolist()
    assert sorted(rig.device.free_pages().tolist())[:4] == late.table.tolist()


def test_decode_growth_takes_pages_and_the_tail_is_cached_at_the_end() -> None:
    rig = Rig()
    _, prefill = rig.seat(0, "ab")
    rig.feed(PrefillDone(prefill.flight))
    granted = rig.one(Granted, rig.feed(PagesWanted(0, 3 * PAGE + 1)))
    assert len(granted.table) == 4
    assert rig.one(Released, rig.finish(0, "abc"))
    assert rig.residency() == {"ab": "D", "abc": "D"}
    assert rig.device.free == 13


def test_eviction_takes_the_coldest_leaf_from_its_tail() -> None:
    rig = Rig(device=8)
    rig.run(0, "abcd")
    rig.run(1, "xyz")
    _, prefill = rig.seat(2, "mno")
    victims = [outcome for outcome in rig.log if isinstance(outcome, Evicted)]
    assert [len(victim.pages) for victim in victims] == [2]
    assert rig.residency() == {"ab": "D", "xyz": "D"}
    assert set(victims[0].pages.tolist()) < set(prefill.table.tolist())


def test_what_is_in_use_is_not_evicted_and_a_refusal_changes_nothing() -> None:
    rig = Rig(device=8)
    rig.run(0, "xy")
    _, prefill = rig.seat(1, "abcde")
    rig.feed(PrefillDone(prefill.flight))
    before = rig.residency(), rig.device.counts.copy(), rig.device.protected
    refused = rig.refusal(2, "mnopq")
    assert (refused.reason, refused.needed, refused.available) == ("no_pages", 5, 3)
    assert (rig.residency(), rig.device.counts, rig.device.protected) == before


def test_a_request_larger_than_the_pool_is_told_so() -> None:
    refused = Rig(device=4).refusal(0, "abcde")
    assert (refused.reason, refused.needed, refused.available) == ("too_large", 5, 4)


def test_a_decode_that_cannot_grow_names_the_latest_request_to_retract() -> None:
    rig = Rig(device=4)
    for request, text in ((0, "ab"), (1, "cd")):
        _, prefill = rig.seat(request, text)
        rig.feed(PrefillDone(prefill.flight))
    refused = rig.one(Refused, rig.feed(PagesWanted(0, 3 * PAGE)))
    assert (refused.reason, refused.preempt) == ("no_pages", 1)
    rig.feed(Retracted(1, key("cd"), 2 * PAGE, 1, 2 * PAGE))
    assert rig.one(Granted, rig.feed(PagesWanted(0, 3 * PAGE)))
    assert rig.residency() == {"ab": "D", "c": "D"}


def test_retracting_keeps_what_was_computed_for_the_return() -> None:
    rig = Rig()
    _, prefill = rig.seat(0, "ab")
    rig.feed(PrefillDone(prefill.flight))
    rig.feed(PagesWanted(0, 3 * PAGE))
    rig.feed(Retracted(0, key("abc"), 3 * PAGE, 2, 3 * PAGE))
    assert rig.device.protected == 0
    assert rig.one(Seated, rig.admit(0)).device_pages == 2


@pytest.mark.parametrize("stage", ["waiting", "prefill", "chunked", "decoding"])
def test_abort_gives_everything_back_at_any_stage(stage: str) -> None:
    rig = Rig()
    rig.arrive(0, "abc", length=3 * PAGE - 1)
    prefill = rig.one(Prefill, rig.admit(0, 5)) if stage != "waiting" else None
    if stage in ("chunked", "decoding") and prefill is not None:
        rig.feed(PrefillDone(prefill.flight))
    if stage == "decoding":
        rig.settle([rig.proceed(0, 100)])
        rig.feed(PagesWanted(0, 5 * PAGE))
    assert rig.one(Released, rig.feed(Aborted(0)))
    if stage == "prefill" and prefill is not None:
        # The pass still writes its pages: nobody may have them before it is over.
        assert rig.device.counts[RETIRING] == 3
        rig.feed(PrefillDone(prefill.flight))
    assert rig.device.counts[OWNED] == rig.device.counts[RETIRING] == 0
    assert rig.device.protected == 0
    rig.feed(EvictWanted(Tier.DEVICE, "full", 16))
    assert rig.device.free == 16


def test_abort_during_a_prefill_keeps_its_prefix_locked_until_the_pass_ends() -> None:
    rig = Rig(device=4)
    rig.run(0, "ab")
    _, prefill = rig.seat(1, "abcd")
    rig.feed(Aborted(1))
    assert rig.refusal(2, "wxyz").reason == "draining"
    assert rig.residency() == {"ab": "D"}
    rig.feed(PrefillDone(prefill.flight))
    assert rig.one(Seated, rig.admit(2))


def test_write_through_backs_up_and_a_host_hit_is_loaded_back() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    assert rig.residency() == {"abcd": "DH"}
    rig.run(1, "wxyz")
    assert rig.residency() == {"abcd": "H", "wxyz": "DH"}
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    assert rig.one(Seated, outcomes)[1:] == (0, 3, 0)
    assert prefill.after == (load.flight,)
    assert prefill.table.tolist() == load.copies[0].target.tolist()
    assert rig.device.counts[LENT] == 3
    rig.feed(LoadDone(load.flight))
    rig.feed(PrefillDone(prefill.flight))
    assert rig.residency()["abc"] == "DH"
    assert rig.residency()["abcd"] == "H"


def test_a_prefill_that_ends_before_its_load_is_acknowledged_lands_it() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    rig.run(1, "wxyz")
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
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
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    assert rig.one(Restarted, rig.feed(LoadDone(load.flight, ok=False)))
    assert rig.device.counts[RETIRING] == 3, "the pass that waited for it has not ended"
    rig.feed(PrefillDone(prefill.flight, ok=False))
    assert rig.device.counts[RETIRING] == 0
    assert rig.residency()["abc"] == "H"
    assert rig.one(Seated, rig.admit(2)).host_pages == 0


def test_a_failed_prefill_publishes_nothing() -> None:
    rig = Rig()
    _, prefill = rig.seat(0, "ab")
    assert rig.one(Restarted, rig.feed(PrefillDone(prefill.flight, ok=False)))
    assert rig.residency() == {}
    assert rig.device.free == 16


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


def test_a_prefix_that_arrives_is_not_loaded_twice() -> None:
    rig = Rig(device=8, host=8)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    rig.arrive(1, "abcx")
    rig.arrive(2, "abcy")
    outcomes = rig.admit(1)
    assert rig.one(Refused, rig.admit(2)).reason == "arriving"
    rig.settle(outcomes)
    assert rig.one(Seated, rig.admit(2)).device_pages == 3


def test_a_load_that_lands_on_a_copy_made_meanwhile_gives_its_pages_back() -> None:
    rig = Rig(device=8, host=8)
    rig.run(0, "ab")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    rig.arrive(1, "ab")
    loading = rig.admit(1)
    load, late = rig.one(Load, loading), rig.one(Prefill, loading)
    rig.arrive(2, "abcd", match_pages=0)
    _, prefill = rig.one(Seated, out := rig.admit(2)), rig.one(Prefill, out)
    rig.settle(rig.feed(PrefillDone(prefill.flight)))
    rig.feed(LoadDone(load.flight))
    assert rig.device.counts[RETIRING] == 2, "request 1's pass still reads its own copy"
    cached = rig.one(Cached, rig.feed(PrefillDone(late.flight)))
    assert cached.table.tolist() == prefill.table.tolist()[:2]
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
    seated, _ = rig.seat(1, "abcde")
    assert (seated.device_pages, seated.host_pages) == (0, loaded)


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
    assert rig.one(Refused, outcomes).reason == "draining"
    backup = rig.one(Backup, outcomes)
    assert len(backup.copies[0].source) == 2
    assert rig.one(Refused, rig.admit(1)).reason == "draining"
    assert not rig.view.requests[1].seated
    rig.feed(BackupDone(backup.flight))
    assert rig.one(Seated, rig.admit(1))
    assert rig.residency() == {"ab": "D", "abcd": "H"}


def test_write_back_waits_for_the_prefix_above_what_drains() -> None:
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


def test_write_back_drops_what_host_cannot_take() -> None:
    rig = Rig(device=4, host=1, write_policy="write_back")
    rig.run(0, "abcd")
    assert rig.seat(1, "wx")
    assert rig.residency() == {"ab": "D"}


def test_a_failed_backup_is_tried_again_at_the_next_use() -> None:
    rig = Rig(host=16)
    _, prefill = rig.seat(0, "ab")
    outcomes = rig.feed(PrefillDone(prefill.flight))
    outcomes = rig.feed(BackupDone(rig.one(Backup, outcomes).flight, ok=False))
    assert rig.residency() == {"ab": "D"}
    assert rig.host.free == 16
    rig.settle(rig.finish(0))
    assert rig.residency() == {"ab": "DH"}


def test_a_child_is_not_published_on_host_without_its_parent() -> None:
    rig = Rig(host=16)
    _, prefill = rig.seat(0, "abcd", chunk=8)
    first = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    second = rig.one(Backup, rig.feed(PrefillDone(rig.proceed(0, 100).flight)))
    rig.feed(BackupDone(first.flight, ok=False))
    rig.feed(BackupDone(second.flight))
    assert rig.residency() == {"ab": "D", "abcd": "D"}
    assert rig.host.free == 16


def test_a_split_under_a_backup_publishes_both_halves() -> None:
    rig = Rig(host=16)
    _, prefill = rig.seat(0, "abcd")
    backup = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    rig.seat(1, "abxy")
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


def test_flush_forgets_everything_but_not_what_is_in_flight() -> None:
    rig = Rig(device=8, host=8)
    _, prefill = rig.seat(0, "abcd")
    backup = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    assert rig.one(Refused, rig.feed(Flushed())).reason == "running"
    rig.finish(0)
    rig.feed(Flushed())
    assert rig.residency() == {}
    assert rig.device.counts[RETIRING] == 4
    assert rig.host.counts[LENT] == 4
    rig.feed(BackupDone(backup.flight))
    assert rig.residency() == {}
    assert rig.device.free == rig.host.free == 8
    assert rig.run(1, "abcd").device_pages == 0


def test_kv_events_mirror_both_tiers() -> None:
    rig = Rig(device=4, host=8, kv_events=True)
    rig.run(0, "abcd")
    rig.run(1, "abwxyz"[:4])
    there: dict[tuple[Tier, bytes], None] = {}
    for outcome in rig.log:
        if isinstance(outcome, KvStored):
            there.update(dict.fromkeys((outcome.tier, digest) for digest in outcome.digests))
        elif isinstance(outcome, KvRemoved):
            for digest in outcome.digests:
                del there[outcome.tier, digest]
    old, new = key("abcd").page_digests(), key("abwx").page_digests()
    assert set(there) == {(Tier.HOST, d) for d in old + new} | {(Tier.DEVICE, d) for d in new}


def test_digests_chain_from_the_namespace() -> None:
    assert key("ab").page_digests()[1] != key("cb").page_digests()[1]
    assert key("ab").page_digests() != key("ab", "tenant").page_digests()
    rig = Rig(kv_events=True)
    rig.arrive(0, "ab", namespace="tenant")
    stored = rig.one(KvStored, rig.settle(rig.admit(0)))
    assert list(stored.digests) == key("ab", "tenant").page_digests()


def test_bigram_keys_are_one_position_shorter() -> None:
    assert Key.from_tokens(tokens("ab"), PAGE, bigram=True).pages == 1
    assert Key.from_tokens(tokens("ab")[:1], PAGE, bigram=True).pages == 0
    one = Key.from_tokens([1, 2, 3, 4, 5], PAGE, bigram=True)
    other = Key.from_tokens([1, 2, 3, 4, 6], PAGE, bigram=True)
    assert one.raw != other.raw, "the last pair reaches into the next page"


def test_the_caller_is_told_what_is_wrong() -> None:
    rig = Rig()
    _, prefill = rig.seat(0, "ab")
    for event, message in (
        (PrefillDone(99), "expected a prefill in flight"),
        (PrefillDone(prefill.flight, True)._replace(flight=0), "expected a prefill"),
        (LoadDone(prefill.flight), "expected a load in flight, found a prefill"),
        (PagesWanted(0, 99), "prefill is in flight"),
        (Aborted(7), "expected a live request"),
        (MatchWanted(0), "expected a waiting request"),
        (EvictWanted(Tier.DEVICE, "swa", 1), "expected pages of full"),
    ):
        with pytest.raises(CallerError, match=message):
            rig.feed(event)
    with pytest.raises(CallerError, match="new id"):
        rig.arrive(0, "ab")
    with pytest.raises(CallerError, match="rows of 32 bytes"):
        rig.feed(Arrived(5, Key.from_tokens(range(8), 8), 8, 1))
    rig.feed(PrefillDone(prefill.flight))
    with pytest.raises(CallerError, match="no longer starts with"):
        rig.finish(0, "xy")
    with pytest.raises(CallerError, match="answer every action exactly once"):
        rig.feed(PrefillDone(prefill.flight))


def test_nodes_keep_no_more_memory_than_their_own_pages() -> None:
    rig = Rig(device=8, host=16)
    for request, text in enumerate(["abcd", "abxy", "mnop", "abcz", "a", "xyz"]):
        rig.run(request, text)
    rig.feed(EvictWanted(Tier.DEVICE, "full", 3))
    rig.feed(EvictWanted(Tier.HOST, "full", 2))
    for node in rig.view.nodes():
        for pages in (pages for tier in node.pages for pages in tier if pages is not None):
            assert pages.base is None
            assert not pages.flags.writeable


@pytest.mark.parametrize("chunk", [PAGE, 6, 3 * PAGE, 100])
def test_a_chunked_prompt_is_backed_up_whole(chunk: int) -> None:
    rig = Rig(host=16)
    _, prefill = rig.seat(0, "abcdef", chunk)
    rig.settle([prefill])
    while rig.view.requests[0].computed < 6 * PAGE:
        rig.settle([rig.proceed(0, chunk)])
    rig.settle(rig.finish(0))
    rig.feed(EvictWanted(Tier.DEVICE, "full", 16))
    assert set(rig.residency().values()) == {"H"}
    assert rig.seat(1, "abcdef")[0].host_pages == 6


def test_a_small_host_does_not_fill_with_mirrors_of_the_device() -> None:
    rig = Rig(device=16, host=4)
    rig.run(0, "abcd")
    rig.run(1, "wxyz")
    assert rig.residency() == {"abcd": "D", "wxyz": "DH"}


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


def test_what_host_fails_to_take_is_dropped_the_next_time() -> None:
    """Found in review: with a host link that always fails, the same leaf drained for ever."""
    rig = Rig(device=4, host=8, write_policy="write_back")
    rig.run(0, "abcd")
    rig.arrive(1, "wxyz")
    backup = rig.one(Backup, rig.admit(1))
    rig.feed(BackupDone(backup.flight, ok=False))
    assert rig.one(Seated, rig.admit(1))
    assert rig.host.free == 8


def test_a_landed_load_that_is_not_acknowledged_is_something_to_wait_for() -> None:
    rig = Rig(device=4, host=8)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    rig.arrive(2, "abcd")
    outcomes = rig.admit(2)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    rig.feed(PrefillDone(prefill.flight))
    rig.finish(2)
    assert rig.refusal(3, "mnop").reason == "draining", "the load still locks what is above it"
    rig.feed(LoadDone(load.flight))
    assert rig.one(Seated, rig.admit(3))


def test_a_request_that_recomputes_anyway_does_not_wait_for_a_load() -> None:
    rig = Rig(device=16, host=8, load_quota_pages=2)
    rig.run(0, "abcd")
    rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    rig.arrive(1, "ab", match_pages=2)
    assert rig.one(Load, rig.admit(1))
    seated, _ = rig.seat(2, "abcdx")
    assert (seated.device_pages, seated.host_pages) == (0, 0)


def test_growth_beyond_the_pool_is_told_so() -> None:
    rig = Rig(device=4)
    _, prefill = rig.seat(0, "ab")
    rig.feed(PrefillDone(prefill.flight))
    refused = rig.one(Refused, rig.feed(PagesWanted(0, 5 * PAGE)))
    assert (refused.reason, refused.needed, refused.available) == ("too_large", 5, 4)


def test_contract_holes_are_closed_before_anything_changes() -> None:
    rig = Rig()
    _, prefill = rig.seat(0, "abcd", chunk=8)
    rig.feed(PrefillDone(prefill.flight))
    other = Key.from_tokens(range(32), 8)
    for event, message in (
        (Finished(0, key("abcd"), 16), "at most the 8 tokens"),
        (Finished(0, Key(other.raw[:64], 64), 8), "no longer starts with|expected 2 to"),
        (EvictWanted(Tier.STORAGE, "full", 1), "on device or host"),
        (Arrived(5, Key(b"", 0), 4, 0), "8-byte words"),
        (Arrived(5, Key(b"abcd", 4), 4, 1), "8-byte words"),
        (Arrived(5, key("a")._replace(namespace="\ud800"), 4, 1), "UTF-8"),
    ):
        with pytest.raises(CallerError, match=message):
            rig.feed(event)
    assert 5 not in rig.view.requests
    with pytest.raises(CallerError, match="each once"):
        Config(4, (4, 4), (0, 0), components=("full", "full"))
