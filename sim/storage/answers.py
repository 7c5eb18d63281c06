"""What a store answers to an action, from the status of each value: pages, counted from the front.

    lookup   the largest n at which every component has what a boundary after n pages requires
    fetch    the largest n such that every page less than n pages behind the first has arrived
    store    how many leading pages are durable

Does not know time; see `immediate` and `timed`.
"""

from __future__ import annotations

from collections.abc import Sequence

from hicache.core.actions import Fetch, Lookup, Piece, Store
from hicache.storage.base import Status

from .contents import Contents


def looked_up(contents: Contents, components: Sequence[str], action: Lookup) -> tuple[int, bool]:
    """The answer to a lookup, and whether the store has answered. components: in the order of the
    configuration."""
    asked = len(action.digests)
    there: list[tuple[int, list[bool | None]]] = []
    for place, (name, trailing) in enumerate(zip(components, action.trailing_pages, strict=True)):
        known = action.known_pages if place == 0 else 0
        found: list[bool | None] = [True] * known
        found += contents.lookup(name, action.digests[known:])
        there.append((trailing, found))
    answered = not any(one is None for _, found in there for one in found)
    for pages in range(asked, 0, -1):
        first = [max(0, pages - trailing) if trailing else 0 for trailing, _ in there]
        if all(all(found[start:pages]) for start, (_, found) in zip(first, there, strict=True)):
            return pages, answered
    return 0, answered


def arrived(action: Fetch, statuses: Sequence[Sequence[Status]]) -> int:
    """The answer to a fetch. statuses: of the pages of each piece, fewer where it was cut short."""
    missing = [
        piece.first_page + place
        for piece, found in zip(action.pieces, statuses, strict=True)
        for place in range(len(piece.digests))
        if place >= len(found) or found[place] is not Status.DONE
    ]
    if not missing:
        return action.pages
    return min(action.pages, max(0, min(missing) - action.first_page))


def durable(statuses: Sequence[Status]) -> int:
    """The answer to a store. statuses: of all pages of all pieces, in order."""
    leading = 0
    for status in statuses:
        if status is not Status.DONE:
            break
        leading += 1
    return leading


def pieces_within(pieces: Sequence[Piece], values: int) -> list[tuple[Piece, int]]:
    """Each piece, and how many of its pages are among the first `values` of all."""
    found = []
    for piece in pieces:
        taken = min(values, len(piece.digests))
        found.append((piece, taken))
        values -= taken
    return found


def values(action: Fetch | Store) -> int:
    """How many values the action moves."""
    return sum(len(piece.digests) for piece in action.pieces)
