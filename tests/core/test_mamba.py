"""Full attention and Mamba states on one tree: where states are made, who owns them, what is cut.

A state may be kept at every page (4 tokens, one letter) unless a test says otherwise; residency
reads "full/mamba". A request has a working slot and two track slots.
"""

from __future__ import annotations

import pytest

from hicache.core.actions import Cached, Prefill
from hicache.core.events import Aborted, PrefillDone
from hicache.core.types import PageState, Tier

from .rig import PAGE, states

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_a_pass_leaves_a_state_at_its_last_page_boundary() -> None:
    rig = states()
    _, prefill = rig.begin(0, "abcdef")
    (slots,) = prefill.states
    assert slots.component == "mamba"
    assert slots.source == -1
    assert len({slots.working, *slots.checkpoint_slots}) == 3
    assert [depth for depth, _ in slots.checkpoints] == [6 * PAGE]
    assert slots.checkpoints[0][1] in slots.checkpoint_slots
    rig.settle([prefill])
    assert rig.residency() == {"abcdef": "D/D"}
    assert rig.owned("mamba") == 3, "a donated slot is replaced"
    rig.finish(0)
    assert rig.pool("mamba").counts[CACHED] == 1
    assert rig.look("abcdefg")[1:] == (6, 0, (6, 6))
    assert rig.look("abcdex")[1:] == (0, 0, (5, 0)), "no state there"
    rig.empty()


def test_a_hit_copies_the_state_into_a_slot_of_its_own() -> None:
    """Copy on use: the cached state stays what it is while the request overwrites its own."""
    rig = states()
    rig.run(0, "abcdef")
    (node,) = rig.view.nodes()
    cached = node.pages[Tier.DEVICE][1]
    assert cached is not None
    admitted, prefill = rig.begin(1, "abcdefgh")
    (slots,) = prefill.states
    assert (admitted.device_pages, prefill.start_token) == (6, 6 * PAGE)
    assert slots.source == cached[0]
    assert slots.source not in (slots.working, *slots.checkpoint_slots)
    assert rig.pool("mamba").state[slots.working] == OWNED
    rig.settle([prefill])
    rig.finish(1)
    assert rig.residency() == {"abcdef": "D/D", "abcdefgh": "D/D"}
    rig.empty()


def test_decode_writes_states_to_two_slots_in_turn_and_the_last_is_kept() -> None:
    """C13 (docs/bugs.md): a finished turn is one token short of a page; its hit ends earlier."""
    rig = states()
    _, prefill = rig.begin(0, "ab")
    rig.settle([prefill])
    tracks = {}
    for letter in "cdef":
        granted = rig.decode(0, letter)
        tracks[letter] = granted.states[0].checkpoint_slots
        assert granted.states[0].interval == PAGE
    rig.finish(0, spare=1)
    assert rig.look("abcdefgh")[1:] == (5, 0, (5, 5))
    (node,) = (node for node in rig.view.nodes() if node.end_page == 5)
    held = node.pages[Tier.DEVICE][1]
    assert held is not None
    assert held[0] == tracks["f"][5 % 2], "depth 5 pages is odd"
    rig.empty()


def test_a_step_ahead_loses_the_older_state() -> None:
    """M6, M7: two passes left states at pages 2 and 3, with no slot to donate either; a step then
    overwrote the first with that of page 4, and was rejected. Only page 3 is what it says."""
    rig = states(device=(32, 3))
    _, prefill = rig.begin(0, "abc", chunk=2 * PAGE)
    rig.settle([prefill])
    rig.settle([rig.continue_prefill(0, PAGE)])
    assert rig.owned("mamba") == 3
    rig.decode(0, "de")
    rig.finish(0, "abc")
    assert rig.look("abcdef").depths == (3, 3)
    assert rig.look("abxyz").depths == (2, 0), "that slot holds the state at page 4"
    rig.empty()


def test_the_state_at_a_fork_is_made_by_the_pass_that_crosses_it() -> None:
    """The branching hint: from what Full knows beyond the boundary that can be reused."""
    rig = states()
    rig.run(0, "abcdef")
    admitted, prefill = rig.begin(1, "abcdxy")
    assert (admitted.device_pages, admitted.matched_pages) == (0, 4)
    assert sorted(depth for depth, _ in prefill.states[0].checkpoints) == [4 * PAGE, 6 * PAGE]
    rig.settle([prefill])
    rig.finish(1)
    assert rig.residency() == {"abcd": "D/D", "abcdef": "D/D", "abcdxy": "D/D"}
    assert rig.look("abcdz").device_pages == 4
    rig.empty()


@pytest.mark.parametrize("limit", [1, 2])
def test_a_path_keeps_as_many_states_as_the_setting_allows(limit: int) -> None:
    rig = states(mamba_states_per_path=limit)
    rig.run(0, "abcdefgh", chunk=2 * PAGE)
    assert rig.pool("mamba").counts[CACHED] <= limit
    assert rig.look("abcdefghi").device_pages == 8, "the deepest stays"
    rig.empty()


@pytest.mark.parametrize("ok", [True, False])
def test_abort_in_the_middle_of_a_pass_returns_every_slot_when_it_ends(ok: bool) -> None:
    """M4: neither the working slot nor the buffer is forgotten, or free while it is written."""
    rig = states(device=(32, 3))
    _, prefill = rig.begin(0, "abcdef")
    rig.feed(Aborted(0))
    assert rig.pool("mamba").counts[RETIRING] == 3
    assert rig.pool("mamba").free == 0
    rig.feed(PrefillDone(prefill.flight, ok))
    assert rig.pool("mamba").free == 3
    rig.empty()


# -- eviction


def test_a_hit_refreshes_the_state_that_it_uses_and_no_other() -> None:
    """K2: states further up the path stay as cold as they are."""
    found = {}
    for policy in ("lru", "lru_path"):
        rig = states(eviction_policy=policy)
        rig.run(0, "ab")
        rig.run(1, "abcd")
        rig.run(2, "pq")
        rig.run(3, "abcdef")
        rig.evict("mamba", 1)
        found[policy] = [text for text in ("ab", "abcd", "pq") if rig.look(text).device_pages]
    assert found["lru"] == ["abcd", "pq"], "the oldest intermediate state"
    assert "pq" not in found["lru_path"], "a whole cold session"


def test_states_are_kept_at_multiples_of_the_interval_only() -> None:
    """E11: the depth of every state is a node boundary, whatever the length of the pass."""
    rig = states(mamba_interval=2 * PAGE)
    rig.arrive(0, "abcde", length=5 * PAGE + 1)
    outcomes = rig.settle(rig.admit(0))
    assert [depth for depth, _ in rig.one(Prefill, outcomes).states[0].checkpoints] == [4 * PAGE]
    assert rig.residency() == {"abcd": "D/D"}
    assert rig.one(Cached, outcomes).pages == 4
    rig.finish(0)
    assert rig.residency() == {"abcd": "D/D"}
    rig.empty()
