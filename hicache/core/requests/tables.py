"""Request tables. Only this file creates and writes them.

    positional component    device pages by position, -1 where the request has none
    component with states   slots [working, checkpoint, checkpoint], -1 for a slot without a page

A table never changes: each write makes a read-only copy. Does not take or free pages; see `windows`
and `placement`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ..actions import StateSlots
from ..errors import CoreBug
from ..radix.node import Flight
from ..state import State
from ..types import BACKBONE, Pages, frozen
from .record import Request


def filled(length: int, start: int, pages: Pages) -> Pages:
    """A table of `length` places with these pages from `start` on, and -1 everywhere else."""
    if not 0 <= start <= length - len(pages):
        raise CoreBug(f"{len(pages)} pages from {start} on do not fit a table of {length} places")
    table = np.full(length, -1, dtype=np.int64)
    table[start : start + len(pages)] = pages
    return frozen(table)


def joined(first: Pages, second: Pages) -> Pages:
    """A table of the first pages, followed by the second, which are read-only."""
    return frozen(np.concatenate((first, second))) if len(first) else second


def extend(request: Request, index: int, pages: Pages) -> None:
    """Append pages to the request's table of a component."""
    request.tables[index] = joined(request.tables[index], pages)


def write(request: Request, index: int, parts: Iterable[tuple[int, Pages]]) -> None:
    """Replace entries of the request's table. parts: (first place, pages)."""
    table = request.tables[index].copy()
    for start, pages in parts:
        if not 0 <= start <= len(table) - len(pages):
            raise CoreBug(f"{request.id}: {len(pages)} pages from {start} on leave its table")
        table[start : start + len(pages)] = pages
    request.tables[index] = frozen(table)


def strike(request: Request, index: int, gaps: Iterable[slice]) -> None:
    """Set the entries of the request's table at these places to -1."""
    table = request.tables[index].copy()
    for gap in gaps:
        if not 0 <= gap.start <= gap.stop <= len(table):
            raise CoreBug(f"{request.id}: places {gap.start}..{gap.stop} leave its table")
        table[gap] = -1
    request.tables[index] = frozen(table)


def own_pages(state: State, request: Request, index: int) -> Pages:
    """Device pages of a component that the request owns, without those of nodes."""
    pages = request.tables[index]
    if index == BACKBONE:
        return pages[request.shared_pages :]
    if state.components[index].positional:
        pages = pages[request.shared_pages :]
    own: Pages = pages[pages >= 0]
    return own


def paged_tables(state: State, request: Request) -> tuple[Pages, ...]:
    """The tables of the positional components, the backbone's first."""
    if not state.bounded:
        return (request.tables[BACKBONE],)
    return (request.tables[BACKBONE], *[request.tables[index] for index in state.bounded])


def state_slots(
    state: State, request: Request, flight: Flight | None = None
) -> tuple[StateSlots, ...]:
    """The slots of the components that have states. With `flight`, also what its pass must copy:
    the state to start from and the checkpoints to store."""
    if not state.stateful:
        return ()
    found: list[StateSlots] = []
    for index, component in enumerate(state.components):
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
