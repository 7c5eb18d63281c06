"""Full attention and a sliding window on one tree: what is kept, healed, locked, let go of, moved.

The window is 8 tokens, two letters, unless a test says otherwise; residency reads "full/swa".
"""

from __future__ import annotations

import pytest

from hicache.core.events import PagesWanted
from hicache.core.types import PageState

from .rig import PAGE, windows

FREE, OWNED, CACHED, LENT, RETIRING = PageState


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


@pytest.mark.parametrize("branch_states", [True, False])
def test_the_window_at_a_fork_is_made_by_the_pass_that_crosses_it(branch_states: bool) -> None:
    """The branching hint: Full is known to 4 pages, so what a third request needs there is kept,
    whether or not there would be a state."""
    rig = windows(branch_states=branch_states)
    rig.run(0, "abcdef")
    admitted = rig.run(1, "abcdxy")
    assert (admitted.device_pages, admitted.matched_pages, admitted.depths[0]) == (0, 4, 4)
    assert rig.look("abcdz").device_pages == 4
    assert rig.look("abcdefz").device_pages == 6
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
