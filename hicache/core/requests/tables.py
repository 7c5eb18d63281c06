"""Request tables: the one place that makes and writes them.

    by position   device pages in order, -1 where the request has none
    slots         [working, checkpoint, checkpoint] of a component that has states, -1: none

A table that was handed out never changes: each write is to a copy, which is frozen. Must not live
here: which pages a request takes or gives back, or any pool.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..actions import StateSlots
from ..errors import CoreBug
from ..radix.node import Flight, Request
from ..state import State
from ..types import BACKBONE, Pages, frozen


def filled(length: int, start: int, pages: Pages) -> Pages:
    """A table of `length` places that has these pages from `start` on and nothing else."""
    if not 0 <= start <= length - len(pages):
        raise CoreBug(f"{len(pages)} pages from {start} on do not fit a table of {length} places")
    table = np.full(length, -1, dtype=np.int64)
    table[start : start + len(pages)] = pages
    return frozen(table)


def joined(first: Pages, second: Pages) -> Pages:
    """A table of these pages and then those."""
    return frozen(np.concatenate((first, second)))


def extend(request: Request, index: int, pages: Pages) -> None:
    """More pages behind the last place."""
    request.tables[index] = joined(request.tables[index], pages)


def write(request: Request, index: int, parts: Iterable[tuple[int, Pages]]) -> None:
    """Other pages from each of these places on."""
    table = request.tables[index].copy()
    for start, pages in parts:
        if not 0 <= start <= len(table) - len(pages):
            raise CoreBug(f"{request.id}: {len(pages)} pages from {start} on leave its table")
        table[start : start + len(pages)] = pages
    request.tables[index] = frozen(table)


def strike(request: Request, index: int, gaps: Iterable[slice]) -> None:
    """No pages at these places any more."""
    table = request.tables[index].copy()
    for gap in gaps:
        if not 0 <= gap.start <= gap.stop <= len(table):
            raise CoreBug(f"{request.id}: places {gap.start}..{gap.stop} leave its table")
        table[gap] = -1
    request.tables[index] = frozen(table)


def own_pages(state: State, request: Request, index: int) -> Pages:
    """Device pages of a component that belong to the request itself."""
    pages = request.tables[index]
    if index == BACKBONE:
        return pages[request.shared_pages :]
    if state.components[index].positional:
        pages = pages[request.shared_pages :]
    own: Pages = pages[pages >= 0]
    return own


def paged_tables(state: State, request: Request) -> tuple[Pages, ...]:
    """The tables of the components that have a page per position, the backbone's first."""
    return tuple(
        request.tables[index]
        for index, component in enumerate(state.components)
        if component.positional
    )


def state_slots(
    state: State, request: Request, flight: Flight | None = None
) -> tuple[StateSlots, ...]:
    """The slots of the others, with what a pass is to do about them."""
    found: list[StateSlots] = []
    for index, component in enumerate(state.components) if state.stateful else ():
        if component.positional:
            continue
        working, *slots = request.tables[index].tolist()
        source, checkpoints = -1, []
        if flight is not None:
            source = request.sources[index]
            checkpoints = [
                (depth, slots[slot - 1]) for one, depth, slot in flight.checkpoints if one == index
            ]
        name = state.config.components[index]
        pair = (slots[0], slots[1])
        found.append(
            StateSlots(name, source, working, pair, component.interval, tuple(sorted(checkpoints)))
        )
    return tuple(found)
