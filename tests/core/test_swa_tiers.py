"""A sliding window on device and host: backups, loads, locks in between, refusals.

The window is 8 tokens, two letters; residency reads "full/swa".
"""

from __future__ import annotations

import pytest

from hicache.core.actions import Admitted, Backup, Load, Prefill, Refused, Restarted
from hicache.core.events import Aborted, ContinueWanted, EvictWanted, LoadDone, PrefillDone
from hicache.core.types import Key, PageState, Tier

from .dump import dump
from .rig import PAGE, Rig, tokens, windows

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def tiers(**more: object) -> Rig:
    return windows(host=(64, 32), **more)


def test_everything_is_backed_up_below_a_split_at_the_window() -> None:
    """G2, G9: the upper half of a fresh leaf has a copy too, so the lower half may have one."""
    for chunk in (PAGE, 2 * PAGE, 100):
        rig = tiers()
        rig.run(0, "abcdef", chunk)
        sides = rig.residency()
        assert sides["abcdef"] == "DH/DH"
        assert {side.split("/")[0] for side in sides.values()} == {"DH"}
        rig.demote()
        assert rig.look("abcdef")[1:] == (0, 6, (6, 6))
        rig.empty()


def test_a_window_healed_after_its_full_was_backed_up_is_backed_up_too() -> None:
    """DURABLE(aux): Full of the fork is on host already when the window there is made."""
    rig = tiers()
    rig.run(0, "abcdef")
    rig.run(1, "abcdxy")
    rig.demote()
    assert rig.look("abcdz")[1:3] == (0, 4)


def test_a_window_on_host_is_loaded_under_full_that_is_on_device() -> None:
    rig = tiers()
    rig.run(0, "abcdef")
    rig.run(1, "abcdefgh")
    rig.evict("swa", 2)
    assert rig.residency()["abcdef"] == "DH/H"
    rig.arrive(2, "abcdefx")
    outcomes = rig.admit(2)
    admitted, load = rig.one(Admitted, outcomes), rig.one(Load, outcomes)
    assert (admitted.device_pages, admitted.host_pages, admitted.loaded_pages) == (0, 6, (0, 2))
    assert [copy.component for copy in load.copies] == ["swa"] * len(load.copies)
    assert rig.one(Prefill, outcomes).start_token == 6 * PAGE
    rig.settle(outcomes)
    assert rig.residency()["abcdef"] == "DH/DH"
    rig.finish(2)
    rig.empty()


def test_a_load_brings_full_for_the_path_and_the_window_for_its_end() -> None:
    rig = tiers()
    rig.run(0, "abcdef")
    rig.demote()
    assert set(rig.residency().values()) == {"H/-", "H/H"}
    rig.arrive(1, "abcdefx")
    outcomes = rig.admit(1)
    load = rig.one(Load, outcomes)
    assert rig.one(Admitted, outcomes).loaded_pages == (6, 2)
    kinds = [copy.component for copy in load.copies]
    assert kinds == sorted(kinds, key=("full", "swa").index), "Full first"
    rig.settle(outcomes)
    rig.finish(1)
    assert rig.look("abcdefx").device_pages == 7
    rig.empty()


def test_a_match_inside_a_node_on_host_only_splits_it() -> None:
    """E3 with a window: the upper half has what its end requires."""
    rig = tiers(swa_window=4 * PAGE)
    rig.run(0, "abcd")
    rig.demote()
    assert rig.look("abxy")[1:3] == (0, 2)
    admitted, prefill = rig.begin(1, "abxy")
    assert (admitted.host_pages, admitted.loaded_pages) == (2, (2, 2))
    assert prefill.start_token == 2 * PAGE


def test_a_failed_load_of_the_window_falls_back_to_the_boundary_on_device() -> None:
    """E1: Full on device to 6 pages is no prefix to run from without a window there."""
    rig = tiers()
    rig.run(0, "abcdef")
    rig.evict("swa", 2)
    rig.arrive(1, "abcdefg")
    outcomes = rig.admit(1)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    assert rig.one(Restarted, rig.feed(LoadDone(load.flight, ok=False)))
    rig.feed(PrefillDone(prefill.flight, ok=False))
    outcomes = rig.admit(1)
    again = rig.one(Admitted, outcomes)
    assert (again.device_pages, again.host_pages, again.loaded_pages) == (0, 0, (0, 0))
    assert rig.one(Prefill, outcomes).start_token == 0
    rig.settle(outcomes)
    rig.finish(1)
    assert rig.look("abcdefg").device_pages == 7
    rig.empty()


def test_a_load_ends_at_the_deepest_boundary_valid_for_all_components() -> None:
    """E2: chain P-C, C has Full on host but its window is gone; the load is anchored at P."""
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "abcdef")
    rig.run(2, "abcdefgh")
    rig.run(3, "abx")
    rig.demote()
    rig.evict("swa", 2, Tier.HOST)
    sides = rig.residency()
    assert (sides["ab"], sides["abcdef"]) == ("H/H", "H/-")
    assert rig.look("abcdef")[1:] == (0, 2, (6, 2))
    rig.arrive(4, "abcdef")
    outcomes = rig.admit(4)
    admitted = rig.one(Admitted, outcomes)
    assert (admitted.device_pages, admitted.host_pages, admitted.matched_pages) == (0, 2, 6)
    assert admitted.loaded_pages == (2, 2)
    rig.settle(outcomes)
    rig.settle(rig.finish(4))
    rig.empty()


def test_a_window_revived_between_lock_and_release_is_not_released_by_another() -> None:
    """B1, B3: request 1 locked the path while the window at "abcdef" was on host only; it is
    brought back and locked by request 2; request 1 decodes past its window and ends."""
    rig = tiers()
    rig.run(0, "abcdef")
    rig.run(1, "abcdefghi")
    rig.evict("swa", 2)
    assert rig.residency()["abcdef"] == "DH/H"
    _, prefill = rig.begin(2, "abcdefghi")
    rig.settle([prefill])
    _, later = rig.begin(3, "abcdefx")
    rig.settle([outcome for outcome in rig.log if isinstance(outcome, Load)][-1:])
    for letter in "jklm":
        rig.decode(2, letter)
    rig.settle(rig.finish(2))
    rig.evict("swa", 16)
    assert rig.residency()["abcdef"].startswith("DH/D"), "request 3 reads it"
    rig.settle([later])
    rig.settle(rig.finish(3))
    rig.empty()


def test_early_release_and_end_leave_no_lock_behind() -> None:
    """B5: past the window, retracted, matched again, finished."""
    rig = tiers()
    _, prefill = rig.begin(0, "abcdef")
    rig.settle([prefill])
    for letter in "ghijkl":
        rig.decode(0, letter)
    rig.settle(rig.retract(0, spare=1))
    assert rig.pool("swa").protected == rig.pool("full").protected == 0
    outcomes = rig.admit(0)
    assert rig.one(Admitted, outcomes).device_pages == 11
    rig.settle(outcomes)
    for letter in "mnop":
        rig.decode(0, letter)
    rig.settle(rig.finish(0, spare=1))
    rig.empty()


def test_pages_the_tree_has_adopted_are_not_freed_with_the_request() -> None:
    """A16: a host-only prefix is computed again and revived by the request's own pages."""
    rig = tiers()
    rig.run(0, "abcdef")
    rig.demote()
    rig.run(1, "abcdef", match_pages=0)
    assert rig.pool("full").counts[CACHED] == 6
    assert rig.look("abcdefx")[1:3] == (6, 0)
    rig.empty()


def test_write_back_keeps_the_window_of_an_inner_node_on_host() -> None:
    """G8: its device copy goes under pressure for the window's pool alone; later the leaf goes."""
    rig = tiers(write_policy="write_back")
    rig.run(0, "ab")
    rig.run(1, "abcdef")
    outcomes = rig.feed(EvictWanted(Tier.DEVICE, "swa", 2))
    backup = rig.one(Backup, outcomes)
    assert [copy.component for copy in backup.copies] == ["swa"]
    rig.settle(outcomes)
    rig.evict("swa", 2)
    assert rig.residency()["ab"] == "D/H", "aux on host while Full is on device only"
    rig.demote()
    assert rig.look("abx")[1:3] == (0, 2)
    assert rig.look("abcdefx")[1:3] == (0, 6)
    rig.empty()


def test_host_lists_windows_that_are_on_host_only_and_evicts_them_first() -> None:
    """F10: a copy that went from both tiers to host only is in host's own order."""
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "pq")
    rig.run(2, "pqr")
    rig.run(3, "abc")
    rig.evict("swa", 1)
    only = {text: side for text, side in rig.residency().items() if side.endswith("/H")}
    assert len(only) == 1
    listed = {
        entry[-1] for garbage in (False, True) for entry in rig.view.queue_entries(1, 1, garbage)
    }
    nodes = [node for node in rig.view.nodes() if node.pages[1][1] is not None]
    assert {node.id for node in nodes if node.pages[0][1] is None} <= listed
    rig.evict("swa", 1, Tier.HOST)
    assert not any(side.endswith("/H") for side in rig.residency().values())


def test_a_refusal_for_want_of_windows_changes_nothing() -> None:
    """All of the window's pool is locked or owned; Full has room."""
    rig = windows(device=(32, 3))
    _, prefill = rig.begin(0, "abc")
    rig.arrive(1, "xyz")
    rig.admit(1)
    before = dump(rig.view)
    outcomes = rig.admit(1)
    refusal = rig.one(Refused, outcomes)
    assert (refusal.reason, refusal.component) == ("no_pages", "swa")
    assert dump(rig.view) == before
    rig.settle([prefill])
    rig.finish(0)
    rig.settle(rig.admit(1))
    rig.compute(1)
    rig.finish(1)
    rig.empty()


def test_a_refused_pass_keeps_its_request_admitted_and_idle() -> None:
    """The next chunk finds no page for its window; the refusal names whom to retract."""
    rig = windows(device=(32, 4))
    _, one = rig.begin(0, "abcdefgh", chunk=2 * PAGE)
    rig.settle([one])
    _, two = rig.begin(1, "pqrstuvw", chunk=2 * PAGE)
    rig.settle([two])
    before = dump(rig.view)
    outcomes = rig.feed(ContinueWanted(0, 2 * PAGE))
    if isinstance(outcomes[-1], Prefill):
        pytest.fail("both windows are locked and the pool is full")
    refusal = rig.one(Refused, outcomes)
    assert (refusal.reason, refusal.component) == ("no_pages", "swa")
    assert refusal.preempt in (0, 1)
    assert dump(rig.view) == before
    assert rig.view.requests[0].admitted
    rig.feed(Aborted(1))
    rig.settle(rig.feed(ContinueWanted(0, 2 * PAGE)))
    rig.compute(0, 2 * PAGE)
    rig.finish(0)
    rig.empty()


def test_a_granted_admission_has_room_for_the_window_it_loads() -> None:
    """J1: the window's pool is just big enough for the pass; the hit's window is on host only."""
    rig = windows(device=(32, 4), host=(64, 32))
    rig.run(0, "abcd")
    rig.demote()
    admitted, prefill = rig.begin(1, "abcdefgh")
    assert admitted.host_pages == 4
    assert (prefill.tables[1][2 : prefill.end_token // PAGE] >= 0).all()
    rig.settle([outcome for outcome in rig.log if isinstance(outcome, Load)][-1:])
    rig.settle([prefill])
    rig.compute(1)
    rig.settle(rig.finish(1))
    assert rig.look("abcdefgh").device_pages == 8
    rig.empty()


def test_bigram_keys_of_whole_pages_leave_no_hole() -> None:
    """E13: k pages of tokens are one position short of k pages of pairs."""
    rig = windows()
    prompt = Key.from_tokens(tokens("abcdef"), PAGE, bigram=True)
    assert prompt.pages == 5
    rig.arrive_key(0, prompt, 6 * PAGE)
    rig.settle(rig.admit(0))
    rig.finish_key(0, prompt, 6 * PAGE)
    assert rig.pool("swa").counts[CACHED] == 2
    longer = Key.from_tokens(tokens("abcdefg"), PAGE, bigram=True)
    rig.arrive_key(1, longer, 7 * PAGE)
    assert rig.one(Admitted, rig.admit(1)).device_pages == 5


def test_no_more_of_a_leaf_leaves_host_than_is_wanted_of_its_window() -> None:
    """For one page of the window the whole leaf went, although the rest of it was a prefix that
    another request could reuse."""
    rig = tiers()
    rig.run(0, "ab")
    rig.demote()
    assert rig.residency() == {"ab": "H/H"}
    rig.feed(EvictWanted(Tier.HOST, "swa", 1))
    assert rig.residency() == {"a": "H/H"}
    assert rig.look("abc")[1:3] == (0, 1)
    rig.empty()
