"""Bugs that reviews and random runs found in hybrids, each as the shortest life that showed it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, TypeAlias

import pytest

from hicache.core import tree
from hicache.core.actions import Backup, Evicted, Granted, Load, Prefill
from hicache.core.errors import CallerError
from hicache.core.events import (
    Aborted,
    BackupDone,
    ContinueWanted,
    EvictWanted,
    Finished,
    PagesWanted,
)
from hicache.core.types import Tier

from .rig import PAGE, Rig, hybrid, key, states, windows

TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]


def forget(rig: Rig, request: int) -> None:
    """Abort a request and end what runs for it."""
    rig.feed(Aborted(request))
    rig.settle([one for one in rig.log if isinstance(one, Prefill) and one.request == request])


def test_a_copy_that_lands_beside_a_locked_window_can_be_evicted() -> None:
    """write_back: a window that is on host alone is loaded while its node's backbone drains."""
    rig = hybrid("full,swa", (16, 16), (2, 8), write_policy="write_back")
    for request, text in enumerate(("ab", "abcd", "xy")):
        rig.run(request, text)
    for component in ("swa", "swa", "full", "full"):
        rig.evict(component, 2)
    rig.evict("full", 2, Tier.HOST)
    rig.run(3, "xy")
    drain = rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    rig.begin(4, "abe")
    assert any(isinstance(one, Load) for one in rig.log)
    for backup in drain:
        if isinstance(backup, Backup):
            rig.feed(BackupDone(backup.flight))
    rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    reachable = sum(
        len(node.pages[Tier.HOST][0])
        for node in rig.view.nodes()
        if node.pages[Tier.HOST][0] is not None and not any(node.locks[Tier.HOST])
    )
    assert rig.host.evictable == reachable


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


def test_a_window_beside_a_state_that_host_refused_is_still_copied() -> None:
    """What host refused is noted per component, not for the whole node."""
    rig = hybrid("full,swa,mamba", (32, 32, 16), (32, 32, 16), write_policy="write_back")
    rig.run(0, "abcd")
    rig.run(1, "abcdef")
    failed = rig.one(Backup, rig.feed(EvictWanted(Tier.DEVICE, "mamba", 1)))
    rig.feed(BackupDone(failed.flight, ok=False))
    window = rig.one(Backup, rig.feed(EvictWanted(Tier.DEVICE, "swa", 1)))
    assert [copy.component for copy in window.copies] == ["swa"]
    rig.feed(BackupDone(window.flight))
    assert not rig.one(Evicted, rig.feed(EvictWanted(Tier.DEVICE, "mamba", 1))).demoted


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
        return trace if frame.f_code.co_filename == tree.__file__ else None

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


def test_a_state_takes_no_prefix_along_that_nodes_on_host_need() -> None:
    """write_back: host has no room for a state, because a store still reads the one that it has."""
    rig = states((32, 16), (32, 1), write_policy="write_back", storage=True)
    rig.run(0, "abcdef")
    rig.run(1, "abcdefghij")
    while rig.look("abcdefghijx").device_pages > 6:
        for backup in rig.feed(EvictWanted(Tier.DEVICE, "full", 4)):
            if isinstance(backup, Backup):
                rig.feed(BackupDone(backup.flight))
    assert rig.look("abcdefghijx").host_pages == 4
    gone = rig.feed(EvictWanted(Tier.DEVICE, "mamba", 1))
    assert [(one.component, len(one.pages)) for one in gone] == [("mamba", 1)]
    assert rig.look("abcdefghijx").host_pages == 10
