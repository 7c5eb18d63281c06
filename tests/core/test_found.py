"""Bugs that reviews and random runs found in hybrids, each as the shortest life that showed it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

from hicache.core.actions import Evicted, Granted, Prefill
from hicache.core.events import (
    Aborted,
    EvictWanted,
    PagesWanted,
)
from hicache.core.radix import boundaries
from hicache.core.types import Tier

from .rig import Rig, hybrid, key, windows

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


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


def lines_run_when_a_window_comes_back(children: int) -> int:
    """Lines of `boundaries` that run when the parent of so many long children gets its window."""
    rig = windows((200, 60))
    texts = ["ab" + chr(99 + child) * 6 for child in range(children)]
    rig.run(0, "ab")
    for request, text in enumerate(texts, 1):
        rig.run(request, text)
    for request, text in enumerate(texts, 100):
        rig.begin(request, text)  # its locks keep the child
    assert rig.one(Evicted, rig.feed(EvictWanted(Tier.DEVICE, "swa", 1))).component == "swa"
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        nonlocal count
        count += event == "line"
        return trace if frame.f_code.co_filename == boundaries.__file__ else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        rig.run(99, "ab")
    finally:
        sys.settrace(before)
    return count


def test_children_out_of_reach_cost_a_change_nothing() -> None:
    """A change at a node concerns only the children that end within a window of it."""
    assert lines_run_when_a_window_comes_back(2) == lines_run_when_a_window_comes_back(8) > 0
