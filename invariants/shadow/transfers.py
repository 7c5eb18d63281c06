"""The open actions, and the pages that each of them reads, writes and locks.

Lives here: recording an action, landing its bytes and closing it at its reply, on the page shadow
state.

    load      reads host pages, writes device pages (owned by the transfer record until it lands)
    backup    reads device pages, writes host pages (owned by the transfer record until its reply)
    fetch     writes host pages (owned by the transfer record until its reply)
    store     reads host pages
    lookup, delete  no pages
    prefill   by position: reads the window of its first token up to `start`, writes `start` to
              `end`; of a state: reads the source, writes the working state and the checkpoints
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, get_args

import numpy as np

from hicache.core.actions import Action, Copy, Fetch, Load, Piece, Prefill, StorageAction, Store
from hicache.core.events import Reply
from hicache.core.types import NO_PAGES, Pages, RequestId, Tier, TransferId

from .kinds import Kind
from .pages import TRANSFER, PageShadow, code_of
from .tags import NO_TAGS, POISON, Tags

OF_STORAGE: frozenset[type] = frozenset(get_args(StorageAction))
ACTION_OF: dict[Any, type] = {
    reply: action
    for reply in get_args(Reply)
    for action in get_args(Action)
    if reply.__name__ == f"{action.__name__}Done"
}
REPLIES = tuple(ACTION_OF)
_ON_HOST = Tier.HOST, Tier.HOST
_TO_DEVICE, _TO_HOST = (Tier.HOST, Tier.DEVICE), (Tier.DEVICE, Tier.HOST)
NOTHING: Mapping[tuple[int, bytes], int] = MappingProxyType({})


class Move(NamedTuple):
    """The copies of one component in a transfer, concatenated.

    Between host and storage, only one side has pages. depths: then, for each page, how many pages
    are before it in its prompt. tags: of a fetch, the prefixes whose bytes it brings.
    """

    at: int
    source: Pages
    target: Pages
    depths: Pages = NO_PAGES
    tags: Tags = NO_TAGS


class Use(NamedTuple):
    """The device pages of one component that a pass uses.

    busy: all pages that must not be reused meanwhile: the whole table of the backbone, else the
    pages that the pass reads, those that the request owns and those that its load brings.
    """

    at: int
    reads: Pages
    writes: Pages
    busy: Pages


class TransferRecord:
    """One open action. generations: of sources and targets at its issue."""

    __slots__ = (
        *("action", "generations", "id", "landed", "locked", "locks", "moves", "nodes", "path"),
        *("prompt", "request", "uses"),
    )

    def __init__(self, action: Action, request: RequestId) -> None:
        self.action = action
        self.id: TransferId = action.transfer
        self.request = request
        self.moves: Sequence[Move] = ()
        self.uses: Sequence[Use] = ()
        self.generations: list[tuple[Pages, Pages]] = []
        self.locks: list[tuple[int, Pages]] = []  # (slot, pages)
        self.locked: list[list[Pages]] = []  # locks taken over from a request that left
        self.prompt = NO_TAGS  # of a fetch: up to its end; of a pass: of a request that left
        self.landed = False
        self.path = 0  # number of locked nodes
        self.nodes: list[int] = []  # those of a transfer, by id

    @property
    def tiers(self) -> tuple[Tier, Tier]:
        """Tiers of source and target. Of a transfer between host and storage, both are the one
        that has pages."""
        if type(self.action) in OF_STORAGE:
            return _ON_HOST
        return _TO_DEVICE if type(self.action) is Load else _TO_HOST


def moves_of(copies: Sequence[Copy], kinds: Sequence[Kind]) -> list[Move]:
    """Returns the copies of a transfer, joined per component. Unknown components are left out."""
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


def depths_of(piece: Piece) -> Pages:
    """int64[pages of the piece]: how many pages are before each of them in its prompt."""
    return np.arange(piece.first_page, piece.first_page + len(piece.pages), dtype=np.int64)


def moves_of_pieces(
    action: Fetch | Store,
    kinds: Sequence[Kind],
    tags: Tags = NO_TAGS,
    written: Mapping[tuple[int, bytes], int] = NOTHING,
) -> list[Move]:
    """The pages of a fetch or a store, joined per component. Unknown components are left out.

    A fetch brings what was stored under its digests, or, where another process stored it, the bytes
    of the prompt. tags: of the pages of that prompt. written: by component and digest.
    """
    moves = []
    for kind in kinds:
        mine = [piece for piece in action.pieces if piece.component == kind.name]
        if not mine:
            continue
        pages = np.concatenate([piece.pages for piece in mine])
        if type(action) is Store:
            moves.append(Move(kind.at, pages, NO_PAGES))
            continue
        depths = np.concatenate([depths_of(piece) for piece in mine])
        brought = [tag for piece in mine for tag in _brought(piece, kind.at, tags, written)]
        moves.append(Move(kind.at, NO_PAGES, pages, depths, np.array(brought, dtype=np.uint64)))
    return moves


def _brought(
    piece: Piece, at: int, tags: Tags, written: Mapping[tuple[int, bytes], int]
) -> Iterator[int]:
    for step, depth in enumerate(depths_of(piece).tolist()):
        usual = int(tags[depth]) if depth < len(tags) else 0
        digest = piece.digests[step] if step < len(piece.digests) else b""
        yield written.get((at, digest), usual)


def uses_of(
    action: Prefill, kinds: Sequence[Kind], page_size: int, shared: int, load: TransferRecord | None
) -> list[Use]:
    """Returns the pages that a pass reads and writes, per component; the first and last may be
    partial. shared: number of leading positions that the request does not own. load: that of the
    request, if it has not landed.
    """
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
            checkpoints = [page for _, page in state.checkpoints]
            writes = np.array([state.working, *checkpoints], dtype=np.int64)
            busy = np.array([state.source, state.working, *state.checkpoint_slots], dtype=np.int64)
        if kind.at:
            reads, writes, busy = (pages[pages >= 0] for pages in (reads, writes, busy))
            for move in load.moves if load is not None else ():
                if move.at == kind.at:
                    busy = np.union1d(busy, move.target)
        uses.append(Use(kind.at, reads, writes, busy))
    return uses


class TransferShadow:
    """All open transfer records. pages: the shadow of each slot."""

    def __init__(self, pages: list[PageShadow], kinds: tuple[Kind, ...], page_size: int) -> None:
        self.pages = pages
        self.kinds = kinds
        self.width = len(kinds)
        self.page_size = page_size
        self.open: dict[TransferId, TransferRecord] = {}
        self.latest: TransferId = 0
        self.settled: TransferId = 0  # the latest transfer record before this operation
        self.fresh: list[TransferRecord] = []  # recorded in this operation

    def slots(self, transfer: TransferRecord, index: int) -> tuple[int, int]:
        """The slots of a component's source and target."""
        source, target = transfer.tiers
        return source * self.width + index, target * self.width + index

    def record(self, action: Action, moves: Sequence[Move], uses: Sequence[Use]) -> TransferRecord:
        """Files an action. moves: of a transfer. uses: of a pass."""
        transfer = TransferRecord(action, getattr(action, "request", -1))
        transfer.moves, transfer.uses = moves, uses
        for use in uses:
            shadow = self.pages[use.at]
            shadow.begin_use(use.busy)
            shadow.writer[use.writes] = action.transfer
        for move in moves:
            pages_shadow, other = (self.pages[slot] for slot in self.slots(transfer, move.at))
            pages_shadow.begin_use(move.source)
            other.begin_use(move.target)
            other.writer[move.target] = action.transfer
            other.claim(move.target, code_of(TRANSFER, action.transfer))
        self.open[action.transfer] = transfer
        self.latest = max(self.latest, action.transfer)
        self.fresh.append(transfer)
        return transfer

    def deliver(self, transfer: TransferRecord, end: int) -> None:
        """Files the bytes that a fetch has brought: of the pages before page `end`."""
        for move in transfer.moves:
            shadow = self.pages[self.slots(transfer, move.at)[1]]
            there = move.depths < end
            shadow.content[move.target] = np.where(there, move.tags, POISON)

    def land(self, transfer: TransferRecord, ok: bool) -> None:
        """Files the end of a transfer: its bytes are there (see `deliver` for those of a fetch) or
        will never arrive, and it releases its target pages.
        """
        if transfer.landed:
            return
        transfer.landed = True
        for move in transfer.moves:
            pages_shadow, other = (self.pages[slot] for slot in self.slots(transfer, move.at))
            if type(transfer.action) not in OF_STORAGE:
                other.content[move.target] = pages_shadow.content[move.source] if ok else POISON
            other.writer[move.target] = 0
            pages_shadow.end_use(move.source)
            other.end_use(move.target)
            other.retract(move.target, code_of(TRANSFER, transfer.id))

    def land_prefill(self, transfer: TransferRecord, ok: bool, tags: Tags) -> None:
        """Files the end of a pass: the full pages that it completed, and its checkpoints, hold the
        content of their prefixes.
        """
        action = transfer.action
        if type(action) is not Prefill:
            return
        first = action.start_token // self.page_size
        done = min(action.end_token // self.page_size, len(tags)) if ok else first
        tables, states = iter(action.tables), iter(action.states)
        for use, kind in zip(transfer.uses, self.kinds, strict=True):
            shadow = self.pages[use.at]
            over = use.writes[shadow.writer[use.writes] == transfer.id]
            shadow.writer[over] = 0  # a later pass of the request may write the same page
            if not ok or not kind.positional:
                shadow.content[use.writes] = POISON
            if kind.positional:
                table = next(tables)[first:done]
                there = table >= 0
                shadow.content[table[there]] = tags[first:done][there]
            else:
                for depth, page in next(states).checkpoints if ok else ():
                    if page >= 0 and depth // self.page_size <= len(tags):
                        shadow.content[page] = tags[depth // self.page_size - 1]
            shadow.end_use(use.busy)

    def close(self, transfer: TransferRecord) -> None:
        """Closes a transfer record at its reply: releases its locks."""
        del self.open[transfer.id]
        for slot, pages in transfer.locks:
            self.pages[slot].locks[pages] -= 1
        for index, locked in enumerate(transfer.locked):
            for pages in locked:
                self.pages[index].locks[pages] -= 1
        transfer.locks, transfer.locked = [], []

    def reader(self, load: TransferRecord) -> TransferRecord | None:
        """The last open pass that reads what this load brings, if the request of both was gone
        before it landed."""
        result = None
        for transfer in self.open.values() if load.request < 0 else ():
            passes = transfer.request < 0 and type(transfer.action) is Prefill
            if passes and load.id in transfer.action.after:  # type: ignore[union-attr]
                result = transfer
        return result

    def unlock_all(self) -> None:
        """Releases all locks: a flush has removed the tree."""
        for transfer in self.open.values():
            transfer.locks, transfer.locked = [], []
        for shadow in self.pages:
            shadow.locks[:] = 0
