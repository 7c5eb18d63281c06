"""Several passes of one request in flight: where they begin, in which order they end, what they
hold."""

from __future__ import annotations

import pytest

from hicache.core.actions import Cached, Prefill, Refused, Restarted
from hicache.core.errors import CallerError
from hicache.core.events import Aborted, AdmitWanted, ContinueWanted, LoadDone, PrefillDone
from hicache.core.types import PageState

from .rig import PAGE, Rig, hybrid


def ends(rig: Rig, one: Prefill, ok: bool = True) -> list[object]:
    return list(rig.feed(PrefillDone(one.flight, ok)))


def test_the_next_pass_begins_where_the_last_in_flight_ends() -> None:
    rig = Rig(device=8, passes=3)
    _, first = rig.begin(0, "abcdef", chunk=6)
    second = rig.continue_prefill(0, 8)
    third = rig.continue_prefill(0, 100)
    spans = [(one.start_token, one.end_token) for one in (first, second, third)]
    assert spans == [(0, 6), (6, 14), (14, 24)]
    assert [one.completes_prompt for one in (first, second, third)] == [False, False, True]
    pages = []
    for one in (first, second, third):
        pages += [item.pages for item in ends(rig, one) if isinstance(item, Cached)]
    assert pages == [1, 3, 6]


def test_no_more_passes_begin_than_the_configuration_allows() -> None:
    rig = Rig(device=8, passes=2)
    _, first = rig.begin(0, "abcdef", chunk=PAGE)
    second = rig.continue_prefill(0, PAGE)
    with pytest.raises(CallerError, match="fewer than 2 passes in flight, found 2"):
        rig.feed(ContinueWanted(0, PAGE))
    ends(rig, first)
    rig.continue_prefill(0, 100)
    ends(rig, second)
    with pytest.raises(CallerError, match="its prompt of 24 is computed"):
        rig.feed(ContinueWanted(0, PAGE))


def test_passes_of_a_request_end_in_order_also_when_it_is_gone() -> None:
    rig = Rig(device=8, passes=2)
    _, first = rig.begin(0, "abcdef", chunk=PAGE)
    second = rig.continue_prefill(0, PAGE)
    for _ in range(2):
        with pytest.raises(CallerError, match=f"reply to flight {first.flight} first"):
            ends(rig, second)
        if 0 in rig.view.requests:
            rig.feed(Aborted(0))
    ends(rig, first)
    assert rig.device.counts[PageState.RETIRING] == 6  # the second pass still uses them
    ends(rig, second)
    assert rig.device.free == 8


def test_a_pass_stores_no_state_of_a_depth_before_its_start() -> None:
    rig = hybrid("full,mamba", (32, 16), mamba_interval=PAGE, passes=3)
    rig.run(0, "abcdefgh")
    rig.arrive(1, "abcdxyzwpq")
    first = rig.one(Prefill, rig.admit(1, 4 * PAGE))
    second = rig.continue_prefill(1, 2 * PAGE)
    depths = [[depth for depth, _ in one.states[0].checkpoints] for one in (first, second)]
    assert depths[0] == [4 * PAGE]
    assert all(4 * PAGE < depth <= 6 * PAGE for depth in depths[1])


def test_after_a_failure_the_later_passes_do_not_count() -> None:
    rig = Rig(device=8, passes=2)
    _, first = rig.begin(0, "abcdef", chunk=PAGE)
    second = rig.continue_prefill(0, PAGE)
    assert any(isinstance(one, Restarted) for one in ends(rig, first, ok=False))
    assert rig.device.counts[PageState.RETIRING] == 6  # the second pass still uses them
    assert ends(rig, second) == []
    assert rig.device.free == 8
    assert rig.one(Prefill, rig.feed(AdmitWanted(0, PAGE))).start_token == 0


def test_every_pass_of_a_request_waits_for_its_load() -> None:
    rig = Rig(device=8, host=16, passes=2)
    rig.run(0, "abcd")
    rig.demote()
    rig.arrive(1, "abcdefgh")
    outcomes = rig.admit(1, PAGE)
    first = rig.one(Prefill, outcomes)
    second = rig.continue_prefill(1, PAGE)
    assert first.after == second.after != ()
    ends(rig, first)  # it has read what the load brought
    assert rig.continue_prefill(1, PAGE).after == ()
    rig.feed(LoadDone(first.after[0]))


def test_the_window_of_a_pass_in_flight_stays_and_nobody_is_to_give_way() -> None:
    rig = hybrid("full,swa", (16, 3), swa_window=PAGE, passes=3)
    rig.arrive(0, "abcdef")
    first = rig.one(Prefill, rig.admit(0, 2 * PAGE))
    second = rig.continue_prefill(0, PAGE)
    refusal = rig.one(Refused, rig.feed(ContinueWanted(0, PAGE)))
    assert (refusal.component, refusal.preempt, refusal.reason) == ("swa", -1, "no_pages")
    ends(rig, first)  # what lies behind its window is on loan to the second pass
    assert (second.tables[1][1:3] >= 0).all()
    refusal = rig.one(Refused, rig.feed(ContinueWanted(0, PAGE)))
    assert (refusal.reason, refusal.after) == ("writing_back", second.flight)
    ends(rig, second)
    assert rig.continue_prefill(0, PAGE).start_token == 3 * PAGE


def test_two_passes_never_store_states_in_one_slot() -> None:
    rig = hybrid("full,mamba", (16, 8), mamba_interval=PAGE, passes=4)
    rig.arrive(0, "abcdefgh")
    flying = [rig.one(Prefill, rig.admit(0, PAGE))]
    flying += [rig.continue_prefill(0, PAGE) for _ in range(3)]
    stored = [page for one in flying for _, page in one.states[0].checkpoints]
    assert len(stored) == len(set(stored)) == 2
    for one in flying:
        ends(rig, one)
    assert rig.continue_prefill(0, PAGE).states[0].checkpoints
