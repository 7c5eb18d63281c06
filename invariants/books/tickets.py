"""Tickets: the actions nobody has answered yet, and what each of them reads, writes and pins.

Lives here: filing an action, landing its bytes and closing it at its reply, on the page books.
Must not live here: requests, nodes, or verdicts.

    load      reads host pages, writes device pages (lent to the ticket until it lands)
    backup    reads device pages, writes host pages (lent to the ticket until its reply)
    prefill   by position: reads what the window of its first token covers up to `start`, writes
              from there to `end`; of a state: reads the source, writes the working state and the
              checkpoints
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hicache.core.actions import Backup, Copy, Load, Prefill
from hicache.core.types import NO_PAGES, FlightId, Pages, RequestId, Tier

from .kinds import Kind
from .pages import FLIGHT, PageBook, code_of
from .tags import POISON, Tags


class Move(NamedTuple):
    """What a transfer moves of one component, all its copies in order."""

    at: int
    source: Pages
    target: Pages


class Use(NamedTuple):
    """What a pass touches of one component's device pages. busy: all that it keeps from being used
    again: of the backbone the whole table, else what it reads and whatever the request has itself.
    """

    at: int
    reads: Pages
    writes: Pages
    busy: Pages


class Ticket:
    """One unanswered action. `generations` are those of sources and targets when it was issued."""

    __slots__ = (
        "action",
        "generations",
        "id",
        "landed",
        "locked",
        "moves",
        "path",
        "pins",
        "request",
        "uses",
    )

    def __init__(self, action: Load | Backup | Prefill, request: RequestId) -> None:
        self.action = action
        self.id: FlightId = action.flight
        self.request = request
        self.moves: Sequence[Move] = ()
        self.uses: Sequence[Use] = ()
        self.generations: list[tuple[Pages, Pages]] = []
        self.pins: list[tuple[int, Pages]] = []  # (slot, pages) of the path that it keeps
        self.locked: list[list[Pages]] = []  # locks taken over from a request that is gone
        self.landed = False
        self.path = 0  # nodes that it pins

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """Where source and target are."""
        if type(self.action) is Load:
            return Tier.HOST, Tier.DEVICE
        return Tier.DEVICE, Tier.HOST


def moves_of(copies: Sequence[Copy], kinds: Sequence[Kind]) -> list[Move]:
    """The copies of a transfer, joined per component. A component that is unknown is left out."""
    moves = []
    for kind in kinds:
        mine = [copy for copy in copies if copy.component == kind.name]
        if len(mine) == 1:
            moves.append(Move(kind.at, mine[0].source, mine[0].target))
        elif mine:
            source = np.concatenate([copy.source for copy in mine])
            target = np.concatenate([copy.target for copy in mine])
            moves.append(Move(kind.at, source, target))
    return moves


def uses_of(action: Prefill, kinds: Sequence[Kind], page_size: int, shared: int) -> list[Use]:
    """What a pass reads and writes, per component; the pages at both ends perhaps in part. shared:
    leading positions that are not the request's own."""
    uses = []
    first, last = action.start_token // page_size, -(-action.end_token // page_size)
    tables, states = iter(action.tables), iter(action.states)
    for kind in kinds:
        if kind.positional:
            table = next(tables)
            least = max(0, action.start_token - kind.window + 1) // page_size
            reads = table[least : -(-action.start_token // page_size)]
            writes = table[first:last] if action.end_token > action.start_token else NO_PAGES
            busy = table[max(0, min(least, shared, first - kind.need)) :] if kind.at else table
        else:
            state = next(states)
            reads = np.array([state.source], dtype=np.int64)
            marks = [page for _, page in state.checkpoints]
            writes = np.array([state.working, *marks], dtype=np.int64)
            busy = np.array([state.source, state.working, *state.checkpoint_slots], dtype=np.int64)
        if kind.at:
            reads, writes, busy = (pages[pages >= 0] for pages in (reads, writes, busy))
        uses.append(Use(kind.at, reads, writes, busy))
    return uses


class TicketBook:
    """All open tickets. pages: the page book of each slot."""

    def __init__(self, pages: list[PageBook], kinds: tuple[Kind, ...], page_size: int) -> None:
        self.pages = pages
        self.kinds = kinds
        self.width = len(kinds)
        self.page_size = page_size
        self.open: dict[FlightId, Ticket] = {}
        self.latest: FlightId = 0
        self.settled: FlightId = 0  # the latest before the present operation
        self.fresh: list[Ticket] = []  # filed by the present operation

    def slots(self, ticket: Ticket, index: int) -> tuple[int, int]:
        """The slots of a component's source and target."""
        source, target = ticket.tiers
        return source * self.width + index, target * self.width + index

    def file(
        self, action: Load | Backup | Prefill, moves: Sequence[Move], uses: Sequence[Use]
    ) -> Ticket:
        """moves: of a transfer. uses: of a pass."""
        request = -1 if type(action) is Backup else action.request  # type: ignore[union-attr]
        ticket = Ticket(action, request)
        ticket.moves, ticket.uses = moves, uses
        for use in uses:
            book = self.pages[use.at]
            book.begin_use(use.busy)
            book.writer[use.writes] = action.flight
        for move in moves:
            one, other = (self.pages[slot] for slot in self.slots(ticket, move.at))
            one.begin_use(move.source)
            other.begin_use(move.target)
            other.writer[move.target] = action.flight
            other.claim(move.target, code_of(FLIGHT, action.flight))
        self.open[action.flight] = ticket
        self.latest = max(self.latest, action.flight)
        self.fresh.append(ticket)
        return ticket

    def land(self, ticket: Ticket, ok: bool) -> None:
        """A transfer's bytes are there, or will never be; its target pages are up for adoption."""
        if ticket.landed:
            return
        ticket.landed = True
        for move in ticket.moves:
            one, other = (self.pages[slot] for slot in self.slots(ticket, move.at))
            other.content[move.target] = one.content[move.source] if ok else POISON
            other.writer[move.target] = 0
            one.end_use(move.source)
            other.end_use(move.target)
            other.retract(move.target, code_of(FLIGHT, ticket.id))

    def land_prefill(self, ticket: Ticket, ok: bool, tags: Tags) -> None:
        """A forward pass ended: the whole pages that it completed, and its checkpoints, hold what
        their prefixes stand for."""
        action = ticket.action
        if type(action) is not Prefill:
            return
        first = action.start_token // self.page_size
        done = min(action.end_token // self.page_size, len(tags)) if ok else first
        tables, states = iter(action.tables), iter(action.states)
        for use, kind in zip(ticket.uses, self.kinds, strict=True):
            book = self.pages[use.at]
            book.writer[use.writes] = 0
            if not ok or not kind.positional:
                book.content[use.writes] = POISON
            if kind.positional:
                table = next(tables)[first:done]
                there = table >= 0
                book.content[table[there]] = tags[first:done][there]
            else:
                for depth, page in next(states).checkpoints if ok else ():
                    if page >= 0 and depth // self.page_size <= len(tags):
                        book.content[page] = tags[depth // self.page_size - 1]
            book.end_use(use.busy)

    def close(self, ticket: Ticket) -> None:
        """Its reply came: pins and inherited locks end."""
        del self.open[ticket.id]
        for slot, pages in ticket.pins:
            self.pages[slot].locks[pages] -= 1
        for index, locked in enumerate(ticket.locked):
            for pages in locked:
                self.pages[index].locks[pages] -= 1
        ticket.pins, ticket.locked = [], []

    def unpin_all(self) -> None:
        """A flush: the tree that was pinned is gone."""
        for ticket in self.open.values():
            ticket.pins, ticket.locked = [], []
        for book in self.pages:
            book.locks[:] = 0
