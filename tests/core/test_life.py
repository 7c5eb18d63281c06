"""A request's life through the core, step by step, with every reply in the test's hand."""

from __future__ import annotations

import pytest

from hicache.core.actions import (
    Admitted,
    Granted,
    Prefill,
    Refused,
    Released,
)
from hicache.core.events import (
    Aborted,
    EvictWanted,
    PagesWanted,
    PrefillDone,
    Retracted,
)
from hicache.core.types import PageState, Tier

from .rig import PAGE, Rig, key

FREE, OWNED, CACHED, LENT, RETIRING = PageState


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
