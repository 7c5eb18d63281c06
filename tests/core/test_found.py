"""Bugs that reviews and random runs found in hybrids, each as the shortest life that showed it."""

from __future__ import annotations

import pytest

from hicache.core.actions import Granted, Prefill
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    ContinueWanted,
    Finished,
    PagesWanted,
)
from hicache.core.types import Tier

from .rig import PAGE, Rig, hybrid, key, windows


def forget(rig: Rig, request: int) -> None:
    """Abort a request and end what runs for it."""
    rig.feed(Aborted(request))
    rig.settle([one for one in rig.log if isinstance(one, Prefill) and one.request == request])


def test_a_step_ahead_may_have_written_the_slot_of_an_older_chunk() -> None:
    """The prompt's last boundary had no track; the one before it is in the slot of the next."""
    rig = hybrid("full,mamba", (64, 5))
    text = "abcdefghijk"
    rig.begin(0, "zyxw")
    rig.arrive_key(1, key(text).first(9), 38)
    rig.texts[1] = text
    rig.settle(rig.admit(1, 4))
    for chunk in (12, 22):
        rig.settle([rig.continue_prefill(1, chunk)])
    forget(rig, 0)
    states = rig.one(Granted, rig.feed(PagesWanted(1, 41, 38))).states[0]
    overwritten = states.checkpoint_slots[40 // 4 % 2]
    rig.finish_key(1, key(text).first(9), 39)
    held = [node.pages[Tier.DEVICE][1] for node in rig.view.nodes()]
    assert overwritten not in [int(pages[0]) for pages in held if pages is not None]


def test_missing_checkpoint_slots_are_taken_in_decode() -> None:
    rig = hybrid("full,mamba", (64, 4))
    rig.begin(0, "zyxw")
    _, prefill = rig.begin(1, "abc")
    assert prefill.states[0].checkpoint_slots == (-1, -1)
    rig.settle([prefill])
    forget(rig, 0)
    for letter in "defghijklm":
        granted = rig.decode(1, letter)
    assert min(granted.states[0].checkpoint_slots) >= 0
    rig.finish(1)
    assert rig.look("abcdefghijklm").device_pages == 13


def test_a_checkpoint_slot_holds_no_state_from_before_it_was_taken() -> None:
    """The boundary was passed with one slot; a track taken later cannot have its state."""
    rig = hybrid("full,mamba", (64, 4))
    rig.begin(0, "zyxw")
    _, prefill = rig.begin(1, "abc")
    rig.settle([prefill])
    rig.decode(1, "d")
    forget(rig, 0)
    rig.feed(PagesWanted(1, 4 * PAGE, 4 * PAGE))
    rig.feed(Finished(1, key("abcd"), 4 * PAGE))
    assert rig.look("abcd").device_pages == 0


def test_a_request_does_not_grow_before_its_prompt_is_computed() -> None:
    rig = windows()
    rig.arrive(0, "abcd")
    rig.settle(rig.admit(0, 2 * PAGE))
    with pytest.raises(
        CallerError, match=r"request 0: expected growth after the whole prompt is computed"
    ):
        rig.feed(PagesWanted(0, 6 * PAGE))
    rig.settle(rig.feed(ContinueWanted(0, 2 * PAGE)))
    assert rig.one(Granted, rig.feed(PagesWanted(0, 6 * PAGE))).tables[1].min() >= -1
