"""Pinned prefixes and copies that expire, by hand."""

import pytest

from hicache.core.actions import Evicted, Pinned
from hicache.core.errors import CallerError
from hicache.core.events import EvictWanted, FetchDone, Flushed, PinWanted, TimePassed, UnpinWanted
from hicache.core.types import Tier

from .rig import Rig, key


def served(rig: Rig, *texts: str) -> Rig:
    for text in texts:
        request = len(rig.texts)
        rig.arrive(request, text, match_pages=len(text) - 1)
        rig.settle(rig.admit(request))
        rig.finish(request, text)
    return rig


def pages(outcomes: list[object]) -> int:
    return sum(len(outcome.pages) for outcome in outcomes if isinstance(outcome, Evicted))


def test_a_pin_takes_hold_of_what_comes_later_and_after_a_flush() -> None:
    rig = Rig(device=16, pin_pages=(4,))
    assert rig.feed(PinWanted(1, key("abc"))) == [Pinned(1, 0)]
    for _ in range(2):
        served(rig, "abcd")
        assert rig.view.pins[1].held_pages == 3
        assert pages(rig.feed(EvictWanted(Tier.DEVICE, "full", 16))) == 1
        rig.feed(Flushed())
        assert rig.view.pins[1].held_pages == 0
        assert rig.view.pool(Tier.DEVICE).free == 16


def test_a_pin_on_host_takes_hold_of_what_a_fetch_brings() -> None:
    rig = Rig(16, 8, storage=True, pin_host_pages=(4,))
    rig.feed(PinWanted(0, key("ab"), Tier.HOST))
    fetch = rig.fetch(rig.lookup(1, "abcde"), 4)
    rig.feed(FetchDone(fetch.transfer, fetch.pages))
    assert rig.view.pins[0].held_pages == 2
    rig.evict("full", 99, Tier.HOST)
    assert rig.residency() == {"ab": "H"}


@pytest.mark.parametrize(
    "event", [UnpinWanted(0), PinWanted(-1, key("a")), PinWanted(0, key("")), TimePassed()]
)
def test_a_mistaken_want_is_refused_and_changes_nothing(event: object) -> None:
    rig = Rig(device=8, pin_pages=(4,))
    with pytest.raises(CallerError, match="expected"):
        rig.feed(event)  # type: ignore[arg-type]
    assert not rig.view.pins


def test_pins_leave_room_for_one_request() -> None:
    with pytest.raises(CallerError, match="pin_pages: expected at most"):
        Rig(device=8, pin_pages=(9,))
    with pytest.raises(CallerError, match="device_pages of full"):
        Rig(device=8, pin_pages=(8,))
