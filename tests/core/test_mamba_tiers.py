"""Mamba states on device and host: backups, loads, refusals; and settings that make no sense.

A state may be kept at every page (4 tokens, one letter); residency reads "full/mamba".
"""

from __future__ import annotations

import pytest

from hicache.core.actions import Admitted, Backup, Load, Prefill, Refused, Restarted
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import BackupDone, EvictWanted, LoadDone, PagesWanted, PrefillDone
from hicache.core.types import PageState, Tier
from tests.configs import configured

from .dump import dump
from .rig import PAGE, Rig, states

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def tiers(**more: object) -> Rig:
    return states(host=(64, 32), **more)


def test_a_state_is_demoted_with_its_leaf_and_hits_on_host() -> None:
    """G12: on eviction from the device the state stays where it was backed up."""
    rig = tiers()
    rig.run(0, "abcdef")
    assert rig.residency() == {"abcdef": "DH/DH"}
    rig.evict("full", 6)
    assert rig.residency() == {"abcdef": "H/H"}
    assert rig.look("abcdefg")[1:] == (0, 6, (6, 6))
    rig.empty()


def test_a_state_on_host_is_loaded_and_copied_into_the_working_slot() -> None:
    rig = tiers()
    rig.run(0, "abcdef")
    rig.demote()
    rig.arrive(1, "abcdefgh")
    outcomes = rig.admit(1)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    assert rig.one(Admitted, outcomes).loaded_pages == (6, 1)
    (state,) = (copy for copy in load.copies if copy.component == "mamba")
    assert prefill.states[0].source == state.target[0]
    assert prefill.states[0].working != state.target[0]
    assert prefill.after == (load.flight,)
    rig.settle(outcomes)
    rig.settle(rig.finish(1))
    assert rig.residency() == {"abcdef": "DH/DH", "abcdefgh": "DH/DH"}
    rig.empty()


def test_a_state_alone_is_loaded_where_full_is_on_device() -> None:
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "abcd")
    rig.evict("mamba", 1)
    assert rig.residency() == {"ab": "DH/H", "abcd": "DH/DH"}
    rig.arrive(2, "abx")
    outcomes = rig.admit(2)
    admitted = rig.one(Admitted, outcomes)
    assert (admitted.device_pages, admitted.host_pages, admitted.loaded_pages) == (0, 2, (0, 1))
    rig.settle(outcomes)
    rig.settle(rig.finish(2))
    assert rig.residency()["ab"] == "DH/DH"
    rig.empty()


def test_an_impossible_load_leaves_no_slot_behind() -> None:
    """M3: a state on host, one slot left: it is no use to load it; the request runs from 0."""
    rig = states(device=(32, 4), host=(64, 32))
    rig.run(0, "ab")
    rig.demote()
    _, other = rig.begin(1, "xyz")
    assert rig.owned("mamba") == 3
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    admitted, prefill = rig.one(Admitted, outcomes), rig.one(Prefill, outcomes)
    assert (admitted.device_pages, admitted.host_pages, sum(admitted.loaded_pages)) == (0, 0, 0)
    assert (prefill.start_token, prefill.states[0].source) == (0, -1)
    assert rig.owned("mamba") == 4
    assert rig.pool("mamba").counts[LENT] == 0
    rig.settle([other, prefill])
    rig.settle([*rig.finish(1), *rig.finish(2)])
    rig.empty()


def test_a_refusal_for_want_of_states_changes_nothing() -> None:
    """M1, M3: request, tree and pools are as before it asked."""
    rig = states(device=(32, 3), host=(64, 32))
    rig.run(0, "ab")
    rig.demote()
    _, other = rig.begin(1, "xyz")
    rig.arrive(2, "abc")
    rig.admit(2)
    before = dump(rig.view)
    refusal = rig.one(Refused, rig.admit(2))
    assert (refusal.reason, refusal.component) == ("no_pages", "mamba")
    assert dump(rig.view) == before
    rig.settle([other])
    rig.settle(rig.finish(1))
    rig.settle(rig.admit(2))
    rig.settle(rig.finish(2))
    rig.empty()


def test_a_refusal_for_want_of_full_returns_the_states() -> None:
    """M1: the slots are there, the pages are not."""
    rig = states(device=(8, 16))
    _, other = rig.begin(0, "abcdef")
    rig.arrive(1, "xyzuvw")
    rig.admit(1)
    before = dump(rig.view)
    refusal = rig.one(Refused, rig.admit(1))
    assert (refusal.reason, refusal.component) == ("no_pages", "full")
    assert dump(rig.view) == before
    assert rig.owned("mamba") == 3
    rig.settle([other])
    rig.finish(0)
    rig.empty()


def test_a_failed_load_of_a_state_restarts_without_it() -> None:
    rig = tiers()
    rig.run(0, "abcdef")
    rig.demote()
    rig.arrive(1, "abcdefgh")
    outcomes = rig.admit(1)
    load, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
    assert rig.one(Restarted, rig.feed(LoadDone(load.flight, ok=False)))
    rig.feed(PrefillDone(prefill.flight, ok=False))
    assert rig.pool("mamba").free == rig.pool("mamba").capacity
    outcomes = rig.admit(1)
    assert rig.one(Prefill, outcomes).states[0].source == -1
    rig.settle(outcomes)
    rig.settle(rig.finish(1))
    rig.empty()


def test_two_loads_of_one_node_may_differ_by_component() -> None:
    """B9: the first reads Full of "ab" and the state below it; it has landed with its pass, but
    the copy engine has not answered when a second reads the state of "ab"."""
    for order in ((0, 1), (1, 0)):
        rig = tiers()
        rig.run(0, "ab")
        rig.run(1, "abcd")
        rig.demote()
        rig.arrive(2, "abcdx")
        outcomes = rig.admit(2)
        first, prefill = rig.one(Load, outcomes), rig.one(Prefill, outcomes)
        assert rig.one(Admitted, outcomes).loaded_pages == (4, 1)
        backups = rig.feed(PrefillDone(prefill.flight))
        rig.arrive(3, "aby")
        outcomes = rig.admit(3)
        second = rig.one(Load, outcomes)
        assert rig.one(Admitted, outcomes).loaded_pages == (0, 1)
        for at in order:
            rig.feed(LoadDone((first, second)[at].flight))
        rig.settle([*backups, rig.one(Prefill, outcomes)])
        rig.settle([*rig.finish(2), *rig.finish(3)])
        rig.empty()


def test_host_does_not_evict_states_that_a_copy_reads() -> None:
    """B8: protected per component: Full of another node may go, the state in flight may not."""
    rig = tiers()
    rig.run(0, "ab")
    rig.run(1, "xy")
    rig.demote()
    rig.arrive(2, "abc")
    outcomes = rig.admit(2)
    rig.feed(EvictWanted(Tier.HOST, "mamba", 9))
    assert rig.residency()["ab"].endswith("/H"), "being read"
    rig.settle(outcomes)
    rig.settle(rig.finish(2))
    rig.empty()


def test_write_back_copies_the_state_of_an_inner_node_before_it_goes() -> None:
    """G8 for states."""
    rig = tiers(write_policy="write_back")
    rig.run(0, "ab")
    rig.run(1, "abcd")
    outcomes = rig.feed(EvictWanted(Tier.DEVICE, "mamba", 1))
    assert [copy.component for copy in rig.one(Backup, outcomes).copies] == ["mamba"]
    rig.settle(outcomes)
    rig.evict("mamba", 1)
    assert rig.residency() == {"ab": "D/H", "abcd": "D/D"}
    rig.demote()
    assert rig.look("abx")[1:3] == (0, 2)
    assert rig.look("abcdx")[1:3] == (0, 4)
    rig.empty()


def test_parent_of_leaf_writing_back_its_state_precedes_warmer_leaf() -> None:
    """Found by reading a mutant that lived: only drains that copied full attention were seen."""
    rig = tiers(write_policy="write_back")
    rig.run(0, "ab")
    rig.run(1, "abcd")
    rig.evict("full", 2)
    rig.evict("mamba", 1, Tier.HOST)
    rig.run(2, "xy")
    assert rig.residency() == {"ab": "D/D", "abcd": "DH/D", "xy": "D/D"}
    draining = rig.feed(EvictWanted(Tier.DEVICE, "full", 2))
    assert [copy.component for copy in rig.one(Backup, draining).copies] == ["mamba"]
    assert not rig.feed(EvictWanted(Tier.DEVICE, "full", 4))
    rig.settle(draining)
    rig.evict("full", 4)
    assert rig.residency() == {"ab": "DH/DH", "abcd": "H/H", "xy": "D/D"}
    rig.empty()


def test_a_failed_backup_of_a_state_costs_the_copy_and_nothing_else() -> None:
    rig = tiers()
    _, prefill = rig.begin(0, "ab")
    backup = rig.one(Backup, rig.feed(PrefillDone(prefill.flight)))
    assert [copy.component for copy in backup.copies] == ["full", "mamba"]
    rig.feed(BackupDone(backup.flight, ok=False))
    assert rig.residency() == {"ab": "D/D"}
    rig.settle(rig.finish(0))
    assert rig.residency() == {"ab": "DH/DH"}
    rig.empty()


@pytest.mark.parametrize("chunk", [PAGE, 6, 3 * PAGE, 100])
def test_chunked_prompts_are_backed_up_whole_with_their_states(chunk: int) -> None:
    """G9: drain, evict the device, match."""
    rig = tiers()
    rig.run(0, "abcdef", chunk)
    rig.demote()
    assert rig.look("abcdefg")[1:3] == (0, 6)
    rig.empty()


def test_growth_is_refused_before_it_takes_a_state() -> None:
    rig = states(device=(6, 8))
    _, prefill = rig.begin(0, "abcdef")
    rig.settle([prefill])
    before = dump(rig.view)
    assert rig.one(Refused, rig.feed(PagesWanted(0, 7 * PAGE, 6 * PAGE))).reason == "too_large"
    assert dump(rig.view) == before


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"mamba_interval": 6}, "mamba_interval"),
        ({"mamba_interval": -4}, "mamba_interval"),
        ({"mamba_states_per_path": -1}, "mamba_states_per_path"),
        ({"device_pages": (8, 0)}, "device_pages"),
        ({"swa_window": 8}, "settings"),
    ],
)
def test_meaningless_settings_are_refused(settings: dict[str, object], words: str) -> None:
    full: dict[str, object] = {"page_size": 4, "device_pages": (8, 4), "host_pages": (0, 0)}
    given = {**full, "components": ("full", "mamba"), **settings}
    with pytest.raises(CallerError, match=words):
        Core(configured(**given))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"swa_window": 0}, "swa_window"),
        ({"swa_window": -3}, "swa_window"),
        ({"device_pages": (8, 2)}, "device_pages"),
        ({"device_pages": (8,)}, "device_pages"),
        ({"components": ("full", "lstm"), "swa_window": 0}, "component"),
        ({"components": ("swa", "full")}, "components"),
    ],
)
def test_meaningless_windows_are_refused(settings: dict[str, object], words: str) -> None:
    full: dict[str, object] = {"page_size": 4, "device_pages": (8, 8), "host_pages": (0, 0)}
    given = {**full, "components": ("full", "swa"), "swa_window": 8, **settings}
    with pytest.raises(CallerError, match=words):
        Core(configured(**given))  # type: ignore[arg-type]
