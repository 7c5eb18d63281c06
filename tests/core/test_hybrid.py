"""Full, window and state on one tree: boundaries that need all three, cascades, locks, refusals.

Window 8 tokens (two letters), a state at every page; residency reads "full/swa/mamba".
"""

from __future__ import annotations

import pytest

from hicache.core.actions import Admitted, Backup, Cached, Evicted, Load, Prefill, Refused
from hicache.core.events import Aborted, EvictWanted, Flushed, LoadDone, PrefillDone
from hicache.core.types import PageState, Tier

from .dump import dump
from .rig import PAGE, Rig, hybrid

FREE, OWNED, CACHED, LENT, RETIRING = PageState
ALL = "full,swa,mamba"


def three(
    device: tuple[int, int, int] = (32, 16, 16),
    host: tuple[int, int, int] = (0, 0, 0),
    **more: object,
) -> Rig:
    return hybrid(ALL, device, host, **more)


def tiers(**more: object) -> Rig:
    return three(host=(64, 32, 32), **more)


def test_a_boundary_needs_all_three_components() -> None:
    rig = three()
    rig.run(0, "abcdef", chunk=2 * PAGE)
    assert rig.look("abcdefg")[1:] == (6, 0, (6, 6, 6))
    assert rig.residency()["abcdef"] == "D/D/D"
    rig.empty()


def test_a_match_reports_the_depth_of_each_component() -> None:
    """What capped a hit: Full reaches 5 pages, the windows and the states do not."""
    rig = three()
    rig.run(0, "abcdef")
    device, host, depths = rig.look("abcdex")[1:]
    assert (device, host) == (0, 0)
    assert depths == (5, 0, 0)


def test_the_window_before_the_last_checkpoint_is_kept() -> None:
    """E12: a state every 8 pages, a window of 2; a pass ends at 13 pages and its tree at 8."""
    rig = three(mamba_interval=8 * PAGE)
    rig.arrive(0, "abcdefghijklm")
    outcomes = rig.settle(rig.admit(0))
    assert rig.one(Cached, outcomes).pages == 8
    assert rig.look("abcdefghijklmn").device_pages == 8
    for letter in "no":
        rig.decode(0, letter)
    assert rig.look("abcdefghijklmn").device_pages == 8, "decode passed the window, not this one"
    for letter in "pqrst":
        rig.decode(0, letter)
    rig.finish(0, spare=1)
    assert rig.look("abcdefghijklmnopqrst").device_pages == 16, "at 19, but its states are at 16"
    rig.empty()


def test_chunks_that_end_between_checkpoints_lose_no_window() -> None:
    """E12, chunk by chunk: each insertion ends at a checkpoint whose window must still be there."""
    rig = three(mamba_interval=4 * PAGE, device=(32, 8, 16))
    _, prefill = rig.begin(0, "abcdefghijkl", chunk=3 * PAGE)
    rig.settle([prefill])
    depths = []
    while rig.view.requests[0].computed_tokens < 12 * PAGE:
        rig.settle([rig.continue_prefill(0, 3 * PAGE)])
        depths.append(rig.look("abcdefghijklm").device_pages)
    assert depths[-1] == 12
    assert depths == sorted(depths)
    rig.finish(0)
    rig.empty()


def test_the_branching_hint_makes_window_and_state_at_a_fork() -> None:
    rig = three()
    rig.run(0, "abcdef")
    rig.run(1, "abcdxy")
    assert rig.look("abcdz")[1:] == (4, 0, (4, 4, 4))
    rig.empty()


def test_evicting_full_takes_window_and_state_and_evicting_a_window_takes_the_state() -> None:
    """The cascade on inner nodes, and what each eviction reports."""
    rig = three()
    rig.run(0, "ab")
    rig.run(1, "abcd")
    state = rig.evict("mamba", 1)
    assert [one.component for one in state] == ["mamba"]
    assert rig.residency()["ab"] == "D/D/-"
    rig = three()
    rig.run(0, "ab")
    rig.run(1, "abcd")
    window = rig.evict("swa", 2)
    assert [one.component for one in window] == ["swa", "mamba"]
    assert rig.residency()["ab"] == "D/-/-"
    assert rig.residency()["abcd"] == "D/D/D"
    rig.empty()


def test_a_leaf_is_evicted_whole_whichever_pool_is_short() -> None:
    for name in ALL.split(","):
        rig = three()
        rig.run(0, "ab")
        gone = rig.evict(name, 2 if name != "mamba" else 1)
        assert rig.residency() == {}, name
        assert {one.component for one in gone} == set(ALL.split(","))
        rig.empty()


def test_a_leaf_is_demoted_whole_whichever_pool_is_short() -> None:
    for name in ALL.split(","):
        rig = tiers()
        rig.run(0, "ab")
        gone = rig.evict(name, 2 if name != "mamba" else 1)
        assert rig.residency() == {"ab": "H/H/H"}, name
        assert all(one.demoted for one in gone)
        assert rig.look("abc")[1:] == (0, 2, (2, 2, 2))
        rig.empty()


def test_all_parts_of_a_hit_come_back_in_one_load() -> None:
    rig = tiers()
    rig.run(0, "abcdef")
    rig.demote()
    rig.arrive(1, "abcdefg")
    outcomes = rig.admit(1)
    load = rig.one(Load, outcomes)
    names = [copy.component for copy in load.copies]
    assert names == sorted(names, key=ALL.split(",").index), "Full first"
    assert rig.one(Admitted, outcomes).loaded_pages == (6, 2, 1)
    rig.settle(outcomes)
    rig.settle(rig.finish(1))
    assert rig.look("abcdefgh").device_pages == 7
    rig.empty()


@pytest.mark.parametrize("names", [("swa",), ("mamba",), ("swa", "mamba")])
def test_only_what_is_missing_on_the_device_is_loaded(names: tuple[str, ...]) -> None:
    """Aux-only loads: Full on device, window or state on host only."""
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "abcd")
    for name in names:
        rig.evict(name, 2 if name == "swa" else 1)
    rig.arrive(2, "abx")
    outcomes = rig.admit(2)
    admitted = rig.one(Admitted, outcomes)
    assert (admitted.device_pages, admitted.host_pages, admitted.loaded_pages[0]) == (0, 2, 0)
    copied = {copy.component for copy in rig.one(Load, outcomes).copies}
    assert copied >= set(names)
    assert "full" not in copied
    rig.settle(outcomes)
    rig.settle(rig.finish(2))
    assert rig.residency()["ab"] == "DH/DH/DH"
    rig.empty()


def test_copying_a_state_releases_no_lock_of_another_request() -> None:
    """B2: the prefix is longer than the window, the pool of states is full; B comes and goes."""
    rig = three(device=(32, 16, 7))
    rig.run(0, "abcdef")
    _, running = rig.begin(1, "abcdefgh")
    locked = [rig.pool(name).protected for name in ALL.split(",")]
    _, other = rig.begin(2, "abcdefxy")
    assert rig.pool("mamba").free == 0
    rig.settle([other])
    rig.finish(2)
    assert all(
        rig.pool(name).protected >= before
        for name, before in zip(ALL.split(","), locked, strict=True)
    )
    rig.evict("swa", 16)
    assert rig.residency()["abcdef"].startswith("D/D"), "request 1 reads it"
    rig.settle([running])
    rig.finish(1)
    rig.empty()


@pytest.mark.parametrize("short", ["full", "swa", "mamba"])
def test_a_refusal_is_neutral_whichever_pool_is_short(short: str) -> None:
    """M1, E1: a hit on host that cannot be had, and nothing else either."""
    least = {"full": (9, 16, 16), "swa": (32, 4, 16), "mamba": (32, 16, 3)}
    rig = three(device=least[short], host=(64, 32, 32))
    rig.run(0, "ab")
    rig.demote()
    _, other = rig.begin(1, "pqrs" if short == "swa" else "pqrstu")
    rig.arrive(2, "abcdef" if short == "full" else "abc")
    if isinstance(rig.admit(2)[-1], Prefill):
        pytest.fail(f"request 1 was to use up {short}")
    before = dump(rig.view)
    assert rig.one(Refused, rig.admit(2)).component == short
    assert dump(rig.view) == before
    rig.settle([other])
    rig.compute(1)
    rig.settle(rig.finish(1))
    rig.settle(rig.admit(2))
    rig.compute(2)
    rig.settle(rig.finish(2))
    rig.empty()


def test_a_pool_too_small_for_any_request_says_which_and_how_much() -> None:
    rig = three(device=(4, 16, 16))
    refusal = rig.refusal(0, "abcdef")
    assert (refusal.reason, refusal.component) == ("too_large", "full")
    assert (refusal.needed, refusal.available) == (6, 4)


def test_an_arriving_prefix_is_loaded_once() -> None:
    rig = tiers()
    rig.run(0, "abcd")
    rig.demote()
    rig.arrive(1, "abcdx")
    rig.arrive(2, "abcdy")
    outcomes = rig.admit(1)
    before = dump(rig.view)
    assert rig.one(Refused, rig.admit(2)).reason == "arriving"
    assert dump(rig.view) == before
    rig.settle(outcomes)
    assert rig.one(Admitted, rig.admit(2)).device_pages == 4


def test_a_load_that_lands_after_its_request_left_is_kept() -> None:
    rig = tiers()
    rig.run(0, "abcd")
    rig.demote()
    rig.arrive(1, "abcdx")
    outcomes = rig.admit(1)
    rig.feed(Aborted(1))
    rig.feed(LoadDone(rig.one(Load, outcomes).flight))
    rig.feed(PrefillDone(rig.one(Prefill, outcomes).flight, ok=False))
    assert rig.look("abcdy")[1:3] == (4, 0)
    rig.empty()


def test_a_flush_removes_every_component_and_ends_flights() -> None:
    rig = tiers()
    _, prefill = rig.begin(0, "abcdef")
    backups = rig.feed(PrefillDone(prefill.flight))
    backups += rig.finish(0)
    rig.feed(Flushed())
    assert rig.residency() == {}
    rig.settle([one for one in backups if isinstance(one, Backup)])
    rig.empty()
    assert rig.run(1, "abcdef").device_pages == 0


@pytest.mark.parametrize("policy", ["write_through", "write_through_selective", "write_back"])
def test_a_finished_prefix_is_found_on_host_after_eviction_from_device(policy: str) -> None:
    """DURABLE: drain, evict the device, match: two uses, then all of it from host."""
    rig = tiers(write_policy=policy)
    for request in range(2):
        rig.run(request, "abcdef", chunk=3 * PAGE)
    rig.demote()
    assert rig.look("abcdefg")[1:3] == (0, 6)
    assert not any("D" in side for side in rig.residency().values())
    rig.empty()


def test_write_back_of_an_inner_node_keeps_window_and_state() -> None:
    """G8: the cascade takes the state with the window, but not before both are on host."""
    rig = tiers(write_policy="write_back")
    rig.run(0, "ab")
    rig.run(1, "abcd")
    rig.evict("swa", 2)
    assert rig.residency()["ab"].startswith("D/DH"), "copied first, given up by the next to ask"
    rig.evict("swa", 2)
    assert rig.residency()["ab"].startswith("D/H"), "aux on host while Full is on device only"
    rig.demote()
    assert rig.look("abx")[1:3] == (0, 2)
    assert rig.look("abcdx")[1:3] == (0, 4)
    rig.empty()


def test_selective_backs_up_ancestors_first_below_a_split() -> None:
    """G2: the second use of a lower node finds an upper half that has no copy yet."""
    rig = tiers(write_policy="write_through_selective")
    rig.run(0, "abcdef")
    rig.run(1, "abxy")
    rig.run(2, "abcdef")
    rig.demote()
    assert rig.look("abcdefg")[1:3] == (0, 6)
    rig.empty()


def test_host_evicts_host_only_states_before_duplicates() -> None:
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "abcd")
    rig.evict("mamba", 1)
    assert rig.residency()["ab"].endswith("/H")
    gone = rig.evict("mamba", 1, Tier.HOST)
    assert [one.tier for one in gone] == [Tier.HOST]
    assert rig.residency()["ab"].endswith("/-")
    assert rig.residency()["abcd"].endswith("/DH")
    rig.empty()


def test_evicting_an_aux_copy_on_host_keeps_the_rest() -> None:
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "abcd")
    rig.evict("swa", 2, Tier.HOST)
    assert rig.residency()["ab"].split("/")[0] == "DH"
    assert rig.look("abcdx").device_pages == 4
    rig.empty()


def test_every_eviction_names_its_component_and_pages() -> None:
    rig = tiers()
    rig.run(0, "abcdef", chunk=2 * PAGE)
    before = [rig.pool(name).free for name in ALL.split(",")]
    outcomes = rig.settle(rig.feed(EvictWanted(Tier.DEVICE, "full", 6)))
    gone = [one for one in outcomes if isinstance(one, Evicted)]
    for index, name in enumerate(ALL.split(",")):
        freed = sum(len(one.pages) for one in gone if one.component == name)
        assert rig.pool(name).free - before[index] == freed, name
    assert set(rig.residency().values()) <= {"H/-/-", "H/H/H", "H/H/-", "H/-/H"}
    rig.empty()


def test_everything_is_released_after_an_abort_at_each_step() -> None:
    """A6, M4: abort while waiting, loading, computing, idle, decoding."""
    for step in range(5):
        rig = tiers()
        rig.run(0, "abcd")
        rig.demote()
        rig.arrive(1, "abcdefgh")
        outcomes = rig.admit(1, chunk=2 * PAGE) if step else []
        if step >= 2:
            rig.feed(LoadDone(rig.one(Load, outcomes).flight))
            outcomes = [one for one in outcomes if not isinstance(one, Load)]
        if step >= 3:
            outcomes = rig.settle(outcomes)[:0]
        if step >= 4:
            rig.compute(1)
            rig.decode(1, "i")
        rig.feed(Aborted(1))
        rig.settle(outcomes)
        rig.empty()
