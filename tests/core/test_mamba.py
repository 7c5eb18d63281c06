"""Full attention and Mamba states on one tree: where states are made, who owns them, what is cut.

A state may be kept at every page (4 tokens, one letter) unless a test says otherwise; residency
reads "full/mamba". A request has a working slot and two track slots.
"""

from __future__ import annotations

import pytest

from hicache.core.actions import Admitted, Backup, Cached, Prefill, Restarted
from hicache.core.events import Aborted, ContinueWanted, PrefillDone
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


def test_chunks_leave_a_state_each_and_the_next_continues_from_the_working_slot() -> None:
    rig = states()
    _, first = rig.begin(0, "abcdef", chunk=2 * PAGE)
    rig.settle([first])
    second = rig.continue_prefill(0, 2 * PAGE)
    assert second.states[0].source == -1
    assert second.states[0].working == first.states[0].working
    rig.settle([second])
    rig.compute(0)
    rig.finish(0)
    assert rig.residency() == {"ab": "D/D", "abcd": "D/D", "abcdef": "D/D"}
    rig.empty()


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


def test_decode_that_reaches_no_interval_keeps_only_what_the_prompt_left() -> None:
    rig = states(mamba_interval=4 * PAGE)
    _, prefill = rig.begin(0, "abcd")
    rig.settle([prefill])
    rig.decode(0, "efg")
    rig.finish(0, spare=1)
    assert rig.look("abcdefgh")[1:] == (4, 0, (4, 4))
    assert rig.residency() == {"abcd": "D/D"}, "what no state ends is not worth a page"
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


def test_the_hint_is_rounded_down_to_an_interval() -> None:
    rig = states(mamba_interval=2 * PAGE)
    rig.run(0, "abcdef")
    _, prefill = rig.begin(1, "abcxyzmn")
    depths = sorted(depth for depth, _ in prefill.states[0].checkpoints)
    assert depths == [2 * PAGE, 8 * PAGE]


@pytest.mark.parametrize("limit", [1, 2])
def test_a_path_keeps_as_many_states_as_the_setting_allows(limit: int) -> None:
    rig = states(mamba_states_per_path=limit)
    rig.run(0, "abcdefgh", chunk=2 * PAGE)
    assert rig.pool("mamba").counts[CACHED] <= limit
    assert rig.look("abcdefghi").device_pages == 8, "the deepest stays"
    rig.empty()


def test_without_a_free_slot_nothing_is_cached_and_nothing_fails() -> None:
    """J7, M1: one slot is enough to run."""
    rig = states(device=(32, 1))
    rig.arrive(0, "abcdef")
    outcomes = rig.settle(rig.admit(0))
    assert rig.one(Prefill, outcomes).states[0].checkpoint_slots == (-1, -1)
    rig.decode(0, "g")
    rig.finish(0, spare=1)
    assert rig.pool("mamba").free == 1
    rig.empty()


def test_a_state_is_not_donated_where_nothing_replaces_it_until_the_request_ends() -> None:
    rig = states(device=(32, 3))
    _, prefill = rig.begin(0, "abcdef")
    rig.settle([prefill])
    assert rig.owned("mamba") == 3
    rig.finish(0)
    assert rig.look("abcdefg").device_pages == 6
    assert rig.pool("mamba").free == 2
    rig.empty()


def test_states_locked_by_backups_in_flight_do_not_fail_a_donation() -> None:
    """J7: every cached state is read by a copy that has not answered."""
    rig = states(device=(32, 5), host=(64, 16))
    _, one = rig.begin(0, "ab")
    first = rig.feed(PrefillDone(one.flight))
    rig.finish(0)
    _, two = rig.begin(1, "xyz", chunk=PAGE)
    second = rig.feed(PrefillDone(two.flight))
    third = rig.feed(PrefillDone(rig.continue_prefill(1, PAGE).flight))
    fourth = rig.feed(PrefillDone(rig.continue_prefill(1, PAGE).flight))
    last = rig.finish(1)
    rig.settle([x for x in (*first, *second, *third, *fourth, *last) if isinstance(x, Backup)])
    assert rig.look("abc")[1] == 2
    rig.empty()


def test_a_failed_pass_publishes_no_state_and_returns_its_slots() -> None:
    """M7: a state that was not written for its depth is not given to the tree."""
    rig = states()
    _, prefill = rig.begin(0, "abcdef")
    assert rig.one(Restarted, rig.feed(PrefillDone(prefill.flight, ok=False)))
    assert rig.residency() == {}
    assert rig.owned("mamba") == 0
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


def test_retract_keeps_the_state_and_the_request_returns_to_it() -> None:
    """M6: lengths agree over retract, growth and return."""
    rig = states()
    _, prefill = rig.begin(0, "ab")
    rig.settle([prefill])
    rig.decode(0, "cd")
    rig.decode(0, "e")
    rig.retract(0, spare=1)
    assert rig.owned("mamba") == rig.owned("full") == 0
    outcomes = rig.admit(0)
    assert rig.one(Admitted, outcomes).device_pages == 4
    rig.settle(outcomes)
    rig.finish(0)
    rig.empty()


def test_retract_in_the_middle_of_a_prompt_keeps_what_its_chunks_left() -> None:
    rig = states()
    _, prefill = rig.begin(0, "abcdef", chunk=3 * PAGE)
    rig.settle([prefill])
    rig.settle(rig.feed(ContinueWanted(0, PAGE)))
    rig.retract(0, spare=2 * PAGE)
    assert rig.one(Admitted, rig.admit(0)).device_pages == 4


# -- eviction


def test_inner_nodes_lose_their_state_alone_and_leaves_are_evicted_whole() -> None:
    rig = states()
    rig.run(0, "abcdef", chunk=2 * PAGE)
    rig.evict("mamba", 1)
    rig.evict("mamba", 1)
    assert rig.residency() == {"ab": "D/-", "abcd": "D/-", "abcdef": "D/D"}
    assert rig.look("abcdefg").device_pages == 6
    rig.evict("mamba", 1)
    assert "abcdef" not in rig.residency()
    assert rig.look("abcdefg")[1:3] == (0, 0)
    rig.empty()


def test_a_leaf_that_is_locked_keeps_full_when_its_state_goes() -> None:
    """F1: no children is not yet a leaf to evict."""
    rig = states()
    rig.run(0, "ab")
    _, prefill = rig.begin(1, "abcd")
    rig.settle([prefill])
    rig.decode(1, "e")
    rig.evict("mamba", 9)
    assert {side[0] for side in rig.residency().values()} == {"D"}
    rig.finish(1, spare=1)
    rig.empty()


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


def test_of_the_states_of_one_path_those_near_the_root_go_first() -> None:
    """A use of the whole path makes its states equally recent; the next turn needs the deepest."""
    rig = states(eviction_policy="lru_path")
    texts = ("ab", "abcd", "abcdef")
    for request, text in enumerate(texts):
        rig.run(request, text)
    order = []
    while found := [text for text in texts if rig.residency().get(text) == "D/D"]:
        rig.evict("mamba", 1)
        order += [text for text in found if rig.residency().get(text) != "D/D"]
    assert order == ["ab", "abcd", "abcdef"]
