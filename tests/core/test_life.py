"""A request's life through the core, step by step, with every reply in the test's hand."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    Admitted,
    Cached,
    Granted,
    Matched,
    Prefill,
    Refused,
    Released,
)
from hicache.core.events import (
    Aborted,
    EvictWanted,
    MatchWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import PageState, Tier

from .rig import PAGE, Rig, key

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_a_second_request_reuses_the_shared_prefix() -> None:
    rig = Rig()
    assert rig.run(0, "abcd").device_pages == 0
    assert rig.run(1, "abxy").device_pages == 2
    assert rig.residency() == {"ab": "D", "abcd": "D", "abxy": "D"}


def test_arrival_and_match_query_change_nothing() -> None:
    rig = Rig()
    rig.run(0, "abcd")
    before = rig.residency(), rig.view.tick
    matched = rig.one(Matched, rig.arrive(1, "abx"))
    assert (matched.device_pages, matched.host_pages) == (2, 0)
    assert rig.one(Matched, rig.feed(MatchWanted(1))) == matched
    assert (rig.residency(), rig.view.tick) == before


def test_the_last_page_is_recomputed_if_the_engine_asks_for_it() -> None:
    rig = Rig()
    rig.run(0, "abcd")
    rig.arrive(1, "abcd", match_pages=3)
    outcomes = rig.settle(rig.admit(1))
    assert rig.one(Prefill, outcomes).start_token == 3 * PAGE
    # The recomputed page is a duplicate of the tree's; it was freed.
    assert rig.one(Cached, outcomes).tables[0].tolist() == [0, 1, 2, 3]
    assert rig.device.free == 12


def test_a_partial_page_is_never_cached() -> None:
    rig = Rig()
    rig.arrive(0, "ab", length=2 * PAGE + 3)
    outcomes = rig.settle(rig.admit(0))
    assert len(rig.one(Prefill, outcomes).tables[0]) == 3
    assert rig.one(Cached, outcomes).pages == 2
    rig.finish(0)
    assert rig.device.free == 14


def test_chunks_enter_the_tree_one_by_one() -> None:
    rig = Rig()
    _, first = rig.begin(0, "abcd", chunk=6)
    assert (first.start_token, first.end_token, first.completes_prompt) == (0, 6, False)
    rig.feed(PrefillDone(first.flight))
    assert rig.residency() == {"a": "D"}
    second = rig.continue_prefill(0, 100)
    assert (second.start_token, second.end_token, second.completes_prompt) == (6, 16, True)
    rig.feed(PrefillDone(second.flight))
    assert rig.residency() == {"a": "D", "abcd": "D"}


def test_decode_growth_takes_pages_and_the_tail_is_cached_at_the_end() -> None:
    rig = Rig()
    _, prefill = rig.begin(0, "ab")
    rig.feed(PrefillDone(prefill.flight))
    granted = rig.one(Granted, rig.feed(PagesWanted(0, 3 * PAGE + 1)))
    assert len(granted.tables[0]) == 4
    assert rig.one(Released, rig.finish(0, "abc"))
    assert rig.residency() == {"ab": "D", "abc": "D"}
    assert rig.device.free == 13


def test_a_decode_that_cannot_grow_names_the_latest_request_to_retract() -> None:
    rig = Rig(device=4)
    for request, text in ((0, "ab"), (1, "cd")):
        _, prefill = rig.begin(request, text)
        rig.feed(PrefillDone(prefill.flight))
    refused = rig.one(Refused, rig.feed(PagesWanted(0, 3 * PAGE)))
    assert (refused.reason, refused.preempt) == ("no_pages", 1)
    rig.feed(Retracted(1, key("cd"), 2 * PAGE, 1, 2 * PAGE))
    assert rig.one(Granted, rig.feed(PagesWanted(0, 3 * PAGE)))
    assert rig.residency() == {"ab": "D", "c": "D"}


@pytest.mark.parametrize("stage", ["waiting", "prefill", "chunked", "decoding"])
def test_abort_gives_everything_back_at_any_stage(stage: str) -> None:
    rig = Rig()
    rig.arrive(0, "abc", length=3 * PAGE - 1)
    prefill = rig.one(Prefill, rig.admit(0, 5)) if stage != "waiting" else None
    if stage in ("chunked", "decoding") and prefill is not None:
        rig.feed(PrefillDone(prefill.flight))
    if stage == "decoding":
        rig.settle([rig.continue_prefill(0, 100)])
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
    _, prefill = rig.begin(1, "abcd")
    rig.feed(Aborted(1))
    assert rig.refusal(2, "wxyz").reason == "writing_back"
    assert rig.residency() == {"ab": "D"}
    rig.feed(PrefillDone(prefill.flight))
    assert rig.one(Admitted, rig.admit(2))
