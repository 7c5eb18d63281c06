"""Several passes of one request in flight: how many begin, in which order they end, what they
hold."""

from __future__ import annotations

import pytest

from hicache.core.actions import Prefill, Refused
from hicache.core.errors import CallerError
from hicache.core.events import Aborted, ContinueWanted, PrefillDone
from hicache.core.types import PageState

from .rig import PAGE, Rig, hybrid


def ends(rig: Rig, one: Prefill) -> list[object]:
    return list(rig.feed(PrefillDone(one.flight)))


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
