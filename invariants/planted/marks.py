"""Bugs in `marks`: what eviction policies remember of a node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hicache.core.radix import marks

from .base import bug

_spare = marks._spare
_came = marks.came
_mark_new = marks.mark_new
_mark_split = marks.mark_split
_note_eviction = marks.note_eviction


@bug(marks, "mark_new", kills="spec", components=("full",), eviction="sieve")
def insertion_counts_as_a_visit(state: Any, node: Any) -> None:
    """The request that inserts a node counts as one that visits it."""
    _mark_new(state, node)
    node.marks.visits = [1] * len(state.components)


@bug(marks, "mark_split", kills="spec", components=("full",), eviction="sieve")
def split_halves_were_never_visited(state: Any, upper: Any, node: Any) -> None:
    """The upper half of a split node loses its visits."""
    _mark_split(state, upper, node)
    upper.marks.visits = [0] * len(state.components)


@bug(marks, "_set_cost", kills="spec", components=("full",), eviction="cost_aware")
def deep_pages_cost_as_much_as_the_first(state: Any, node: Any) -> None:
    """The cost of computing a page again does not grow with its depth."""
    node.marks.cost = [state.config.recompute_token_cost] * len(state.components)


@bug(marks, "note_eviction", kills="spec", components=("full", "mamba"), eviction="sieve")
def evicted_states_do_not_age(state: Any, node: Any, index: int) -> None:
    """What is evicted moves the hand of full attention only, and not that of states."""
    if index == 0:
        _note_eviction(state, node, index)


@bug(marks, "note_eviction", kills="spec", components=("full",), eviction="sieve")
def hand_of_sieve_stands_still(state: Any, node: Any, index: int) -> None:
    """What is evicted moves no hand, so a second visit counts like the first."""


@bug(marks, "came", kills="spec", components=("full",), eviction="s3_fifo")
def copies_known_to_the_ghost_come_into_small(
    state: Any, node: Any, index: int, pages: int, digests: Sequence[bytes]
) -> None:
    """A copy that the ghost knows comes into the small queue, like one that is new."""
    known, state.chances[index].ghost = state.chances[index].ghost, {}
    _came(state, node, index, pages, digests)
    state.chances[index].ghost = known


@bug(marks, "_spare", kills="spec", components=("full",), eviction="s3_fifo")
def spared_copies_stay_at_the_front(state: Any, node: Any, index: int) -> bool:
    """A copy that is spared loses its chances, and keeps its place in the queue."""
    place = node.marks.place[index]
    spared = _spare(state, node, index)
    node.marks.place[index] = place
    return spared


@bug(marks, "_spare", kills="spec", components=("full",), eviction="s3_fifo")
def spared_copies_still_count_as_small(state: Any, node: Any, index: int) -> bool:
    """A copy that goes to the main queue still counts among the pages of the small one."""
    small = state.chances[index].small_pages
    spared = _spare(state, node, index)
    state.chances[index].small_pages = small
    return spared


@bug(marks, "_spare", kills="spec", components=("full",), eviction="s3_fifo")
def visited_copies_get_no_second_chance(state: Any, node: Any, index: int) -> bool:
    """A copy at the front of a queue goes, however often it was visited."""
    return False
