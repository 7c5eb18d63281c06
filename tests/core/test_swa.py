"""Full attention and a sliding window on one tree: what is kept, healed, locked, let go of, moved.

The window is 8 tokens, two letters, unless a test says otherwise; residency reads "full/swa".
"""

from __future__ import annotations

import pytest

from hicache.core.actions import Prefill
from hicache.core.events import PagesWanted
from hicache.core.types import PageState, Tier

from .rig import PAGE, Rig, windows

FREE, OWNED, CACHED, LENT, RETIRING = PageState


def test_only_the_last_window_of_a_prompt_is_kept() -> None:
    rig = windows()
    rig.run(0, "abcdef")
    assert rig.residency() == {"abcd": "D/-", "abcdef": "D/D"}
    assert rig.pool("swa").counts[CACHED] == 2
    rig.empty()


@pytest.mark.parametrize(
    ("window", "pages"), [(1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (32, 8)]
)
def test_a_window_is_rounded_up_to_pages_and_a_page_may_be_larger(window: int, pages: int) -> None:
    """F6: with a page larger than the window a leaf still has its last page."""
    rig = windows(swa_window=window)
    rig.run(0, "abcdefghij")
    assert rig.pool("swa").counts[CACHED] == pages
    assert rig.look("abcdefghijk").device_pages == 10
    assert rig.run(1, "abcdefghij").device_pages == 10
    rig.empty()


def test_a_path_shorter_than_the_window_is_a_match_when_it_is_complete() -> None:
    rig = windows(swa_window=8 * PAGE)
    rig.run(0, "ab")
    assert rig.look("abc")[1:3] == (2, 0)


def test_a_match_ends_where_its_window_is_whole() -> None:
    rig = windows()
    rig.run(0, "abcdef")
    found = {text: rig.look(text)[1:] for text in ("abcdefx", "abcdex", "abcdx", "abx")}
    assert found == {
        "abcdefx": (6, 0, (6, 6)),
        "abcdex": (0, 0, (5, 0)),
        "abcdx": (0, 0, (4, 0)),
        "abx": (0, 0, (2, 0)),
    }


def test_the_window_at_a_fork_is_made_by_the_pass_that_crosses_it() -> None:
    """The branching hint: Full is known to 4 pages, so what a third request needs there is kept."""
    rig = windows()
    rig.run(0, "abcdef")
    admitted = rig.run(1, "abcdxy")
    assert (admitted.device_pages, admitted.matched_pages, admitted.depths[0]) == (0, 4, 4)
    assert rig.look("abcdz").device_pages == 4
    assert rig.look("abcdefz").device_pages == 6
    rig.empty()


def test_a_tombstone_in_the_window_is_healed_and_full_pages_of_others_stay() -> None:
    """The nodes of the shared prefix are locked by a request that runs: its pages are not freed."""
    rig = windows()
    _, prefill = rig.begin(0, "abcdef")
    rig.settle([prefill])
    table = rig.view.requests[0].tables[0].tolist()
    rig.run(1, "abcdxy")
    assert rig.view.requests[0].tables[0].tolist() == table
    nodes = {node.end_page: node for node in rig.view.nodes()}
    assert nodes[4].pages[Tier.DEVICE][0].tolist() == table[4 - len(nodes[4].pages[0][0]) : 4]  # type: ignore[union-attr]
    assert nodes[4].pages[Tier.DEVICE][1] is not None
    assert rig.pool("full").counts[CACHED] == 8
    rig.finish(0)
    rig.empty()


def test_tombstoned_pages_that_a_repeated_prompt_recomputes_are_adopted() -> None:
    """E9: the insert follows the tokens, the match after it needs the window as well."""
    rig = windows()
    rig.run(0, "abcdef")
    rig.evict("swa", 2)
    assert rig.look("abcdef").device_pages == 0
    rig.run(1, "abcdef", chunk=2 * PAGE)
    assert rig.look("abcdef").device_pages == 6
    assert rig.pool("full").counts[CACHED] == 6
    rig.empty()


def test_locks_cover_the_window_rounded_up_to_pages_and_no_page_more() -> None:
    """LOCK-SPAN: the node that the window begins in is split there."""
    rig = windows(swa_window=8 * PAGE)
    rig.run(0, "abcdefgh")
    rig.run(1, "abcdefghijklmn")
    rig.begin(2, "abcdefghijklmn")
    assert rig.pool("swa").protected == 8
    assert rig.pool("full").protected == 14
    ends = {node.end_page for node in rig.view.nodes()}
    assert 14 - 8 in ends
    rig.settle([rig.log[-1]])
    rig.finish(2)
    assert rig.pool("swa").protected == rig.pool("full").protected == 0
    rig.empty()


def test_decode_releases_pages_behind_the_window() -> None:
    """A pool of a window and a page is enough for any length; 8 letters are generated."""
    rig = windows(device=(32, 4))
    rig.run(9, "ab")
    _, prefill = rig.begin(0, "abcd")
    rig.settle([prefill])
    for letter in "efghijkl":
        granted = rig.decode(0, letter)
        assert len(granted.tables[0]) == len(granted.tables[1])
        assert (granted.tables[1][-2:] >= 0).all()
        held = int((granted.tables[1] >= 0).sum())
        assert held <= 2 + 2, "the window, the page it enters and the one that is begun"
    rig.settle(rig.finish(0, spare=1))
    assert rig.look("abcdefghijklm").device_pages == 11, "the window behind the last whole page"
    rig.empty()


@pytest.mark.parametrize("more", range(1, 2 * PAGE))
def test_the_window_of_the_last_page_boundary_outlives_decode(more: int) -> None:
    """E12, F6: a match lands on a page boundary, not on the tail that decode has reached. The
    window (3) is smaller than a page, so decode itself needs nothing of the page before."""
    rig = windows(swa_window=3)
    _, prefill = rig.begin(0, "abcd")
    rig.settle([prefill])
    computed = 4 * PAGE + more
    rig.feed(PagesWanted(0, computed + 1, 4 * PAGE))
    rig.feed(PagesWanted(0, computed + 2, computed))
    text = "abcd" + "efgh"[: -(-computed // PAGE) - 4]
    rig.finish(0, text, spare=len(text) * PAGE - computed)
    assert rig.look("abcdefghij").device_pages == computed // PAGE
    rig.empty()


def test_pages_are_not_released_while_a_pass_may_read_them() -> None:
    """F7: `computed` 0 says that a running pass reads behind the window."""
    rig = windows()
    _, prefill = rig.begin(0, "ab")
    rig.settle([prefill])
    for letter in "cdef":
        granted = rig.decode(0, letter, computed=0)
    assert (granted.tables[1] >= 0).all()
    assert rig.pool("swa").counts[CACHED] + rig.owned("swa") == 6


def test_full_alone_stays_cacheable_outside_the_window() -> None:
    """F4: the window has no veto over a leaf that lies outside it altogether."""
    rig = windows()
    rig.run(0, "abcdefgh", chunk=2 * PAGE)
    assert set("".join(rig.residency())) == set("abcdefgh")
    assert rig.pool("full").counts[CACHED] == 8
    assert rig.look("abcdefgh")[1:] == (8, 0, (8, 8))


def test_a_prompt_longer_than_the_pool_of_the_window_runs_in_smaller_passes() -> None:
    rig = windows(device=(32, 3))
    rig.arrive(0, "abcdefghij")
    first = rig.one(Prefill, rig.admit(0))
    assert first.start_token == 0
    assert 0 < first.end_token <= 3 * PAGE
    assert (first.tables[1][: first.end_token // PAGE] >= 0).all()
    rig.settle([first])
    passes = rig.compute(0)
    assert passes[-1].end_token == 10 * PAGE
    assert passes[-1].completes_prompt
    rig.finish(0)
    assert rig.look("abcdefghij").device_pages == 10
    rig.empty()


def test_windows_between_a_request_and_its_prefix_are_mapped_to_full() -> None:
    """A1, MAP-SWA: zero where there is no peer, injective elsewhere, whole pages only."""
    rig = windows()
    rig.run(0, "abcdef")
    rig.begin(1, "abcdefgh")
    peers = rig.view.peers(Tier.DEVICE, 1).tolist()
    assert len(peers) == 32
    table, window = (table.tolist() for table in rig.view.requests[1].tables)
    assert [peers[page] for page in table] == [page + 1 for page in window]
    assert window[:4] == [-1] * 4
    assert all(page >= 0 for page in window[4:])
    there = [peer for peer in peers if peer]
    assert len(set(there)) == len(there) == 4


def test_the_sentinel_of_an_empty_place_is_never_freed() -> None:
    """A12, A15: absent is None on a node and -1 in a table; evicting a hole frees nothing."""
    rig = windows(device=(8, 8))
    rig.run(0, "abcdef")
    assert sorted(rig.pool("swa").free_pages().tolist() + _cached(rig, 1)) == list(range(8))
    rig.evict("swa", 8)
    rig.evict("full", 8)
    for name in ("full", "swa"):
        assert sorted(rig.pool(name).free_pages().tolist()) == list(range(8))


def _cached(rig: Rig, component: int) -> list[int]:
    held = [node.pages[Tier.DEVICE][component] for node in rig.view.nodes()]
    return [page for pages in held if pages is not None for page in pages.tolist()]


def test_a_childless_node_whose_full_is_locked_is_no_leaf_to_evict() -> None:
    """F1: decode released the window's lock; evicting the window leaves Full where it is."""
    rig = windows()
    _, prefill = rig.begin(0, "abcdef")
    rig.settle([prefill])
    for letter in "ghijk":
        rig.decode(0, letter)
    assert rig.pool("swa").protected == 0
    rig.evict("swa", 16)
    assert rig.residency()["abcdef"] == "D/-"
    rig.finish(0)
    assert rig.look("abcdefghijk").device_pages == 11
    rig.empty()


def test_evicting_the_window_of_an_inner_node_leaves_a_tombstone() -> None:
    rig = windows()
    rig.run(0, "ab")
    rig.run(1, "abcdef")
    (gone,) = rig.evict("swa", 2)
    assert (gone.component, len(gone.pages)) == ("swa", 2)
    assert rig.residency()["ab"] == "D/-", "the older of the two"
    assert rig.look("abx").device_pages == 0
    assert rig.look("abcdefx").device_pages == 6


def test_evicting_the_window_of_a_leaf_takes_the_leaf() -> None:
    rig = windows()
    rig.run(0, "ab")
    rig.run(1, "xy")
    rig.evict("swa", 1)
    assert "ab" not in rig.residency()
    assert rig.look("ab").device_pages <= 1
    assert rig.look("xy").device_pages == 2


def test_a_hit_refreshes_only_the_window_that_it_uses() -> None:
    """K1: the short session's window is colder than the long path's own, whatever hits below it."""
    found = {}
    for policy in ("lru", "lru_path"):
        rig = windows(eviction_policy=policy)
        rig.run(0, "ab")
        rig.run(1, "abcdefgh")
        rig.run(2, "pq")
        rig.run(3, "abcdefghi")
        rig.evict("swa", 2)
        found[policy] = [text for text in ("ab", "pq") if rig.look(text).device_pages == 2]
    assert found == {"lru": ["pq"], "lru_path": ["ab"]}


def test_copies_without_a_live_boundary_are_removed_at_once() -> None:
    """A leaf that loses a page leaves a window nobody can match at: nothing of it stays behind."""
    rig = windows(swa_window=3 * PAGE)
    rig.run(0, "abcdef")
    rig.run(1, "xyz")
    rig.evict("full", 1)
    assert rig.look("abcdef").device_pages == 0, "its last page is gone"
    assert rig.look("xyz").device_pages == 3
    for component in (0, 1):
        assert rig.view.pool(Tier.DEVICE, component).counts[PageState.CACHED] == 3
