"""What is locked: the pages of a transfer until its reply, and pinned prefixes.

Lives here: the locks of one transfer record, taken when that is made, and what pinned prefixes
lock, as the core notes it for each: what a pin may hold is for the specification to say.

    the backbone      of the path to the transfer's boundary, or to the deepest node that it reads,
                      on both tiers; on host alone if storage is the other side
    other components  the pages that it reads

A fetch locks the host copies on the path of its prompt, down to the last node that it shares a
page with: of the backbone, and of another component those that the boundary to be fetched requires.
"""

from dataclasses import dataclass, field

import numpy as np

from hicache.core.actions import Fetch, Load
from hicache.core.types import Pages, PinId
from hicache.core.view import CoreView

from .nodes import NodeShadow
from .pages import KIND_BITS, KIND_MASK, NODE, PageShadow
from .record import NodeRecord
from .requests import RequestShadow
from .tags import Tags, tags_of
from .transfers import OF_STORAGE, TransferRecord, TransferShadow


def lock(
    transfer: TransferRecord, transfers: TransferShadow, nodes: NodeShadow, reqs: RequestShadow
) -> str:
    """Locks the pages of a transfer record. Returns "", or the error if it reads a page that no
    node owns."""
    deepest: NodeRecord | None = None
    stores = type(transfer.action) in OF_STORAGE
    for move in transfer.moves:
        slot, _ = transfers.slots(transfer, move.at)
        shadow = transfers.pages[slot]
        codes = shadow.owner[move.source].tolist()
        whose = dict.fromkeys(codes)
        for code in whose:
            if code & KIND_MASK != NODE:
                page = move.source.item(codes.index(code))
                return f"transfer {transfer.id} reads page {page} of no node"
        for code in whose if move.at else codes[-1:]:
            record = nodes.by_id[code >> KIND_BITS]
            nodes.dirty[record.id] = record
            if deepest is None or record.end_page > deepest.end_page:
                deepest = record
        if move.at:
            shadow.locks[move.source] += 1
            transfer.locks.append((slot, move.source))
    req = reqs.by_id.get(transfer.request)
    if type(transfer.action) is Fetch:
        _lock_prompt(transfer, transfers, nodes)
        return ""
    if req is not None and transfer.moves and req.boundary:  # a load locks as far as its boundary
        deepest = nodes.at.get(int(req.tags[req.boundary - 1]), deepest)
    path = nodes.path(deepest.id) if deepest is not None else []
    transfer.path += len(path)
    transfer.nodes += [record.id for record in path]
    for slot in (0, transfers.width) if not stores else (transfers.width,):
        there = {record.id: record for record in path if record.pages[slot] is not None}
        if there:
            all_pages = np.concatenate(
                [some for record in path if (some := record.pages[slot]) is not None]
            )
            transfers.pages[slot].locks[all_pages] += 1
            transfer.locks.append((slot, all_pages))
            nodes.dirty.update(there)
    return ""


def follow(transfers: TransferShadow, nodes: NodeShadow, answered: TransferRecord | None) -> None:
    """Updates what earlier fetches and stores lock, on host alone. What is deleted with the device
    copies above it leaves them. A node that comes to host above or beside what they lock is locked
    too, with the path above it. answered: the record of this operation's reply (`_hand_over`)."""
    if answered is not None and type(answered.action) is Load:
        _hand_over(answered, transfers, nodes)
    stores = [
        item for item in transfers.open.values() if type(item.action) in OF_STORAGE and item.locks
    ]
    ours = [transfer for transfer in stores if transfer not in transfers.fresh]
    if not ours:
        return
    host = transfers.pages[transfers.width]
    codes = {code >> KIND_BITS for _, code in host.claimed if code & KIND_MASK == NODE}
    came = sorted((nodes.by_id[code] for code in codes if code in nodes.by_id), key=_depth)
    for transfer in ours:
        if nodes.gone:
            _drop(transfer, transfers)
        locked: set[tuple[int, int]] = {
            (slot, page)
            for slot, pages in transfer.locks
            for page in (pages.tolist() if came else ())
        }
        for record in reversed(came):
            below = record.node.children if record.node is not None else {}
            beside = [(transfers.width, nodes.by_id[node.id]) for node in below.values()]
            beside += [(transfers.width + at, record) for at in range(transfers.width)]
            kept = any(
                pages is not None and (slot, int(pages[0])) in locked
                for slot, pages in ((slot, other.pages[slot]) for slot, other in beside)
            )
            for above in nodes.path(record.id) if kept else ():
                pages = above.pages[transfers.width]
                if pages is not None and (transfers.width, int(pages[0])) not in locked:
                    host.locks[pages] += 1
                    transfer.locks.append((transfers.width, pages))
                    locked.update((transfers.width, page) for page in pages.tolist())
                    nodes.dirty[above.id] = above


def _hand_over(load: TransferRecord, transfers: TransferShadow, nodes: NodeShadow) -> None:
    """A load has landed. If its request is gone, the pass of that request locks what nodes have of
    the pages that it still reads."""
    reader = transfers.reader(load)
    if reader is None:
        return
    for move in load.moves:
        shadow = transfers.pages[move.at]
        pages = move.target[shadow.owner[move.target] & KIND_MASK == NODE]
        shadow.locks[pages] += 1
        reader.locked[move.at].append(pages)
        for code in dict.fromkeys(shadow.owner[pages].tolist()):
            nodes.dirty[code >> KIND_BITS] = nodes.by_id[code >> KIND_BITS]


def _depth(record: NodeRecord) -> int:
    return record.end_page


def _drop(transfer: TransferRecord, transfers: TransferShadow) -> None:
    """Releases the pages that no node has any more."""
    kept = []
    for slot, pages in transfer.locks:
        shadow = transfers.pages[slot]
        gone = shadow.owner[pages] & KIND_MASK != NODE
        shadow.locks[pages[gone]] -= 1
        kept.append((slot, pages[~gone]))
    transfer.locks = kept


def _lock_prompt(transfer: TransferRecord, transfers: TransferShadow, nodes: NodeShadow) -> None:
    """Locks what a fetch continues."""
    end = len(transfer.prompt)
    for record, depth in nodes.path_of(transfer.prompt):
        transfer.path += 1
        transfer.nodes.insert(0, record.id)  # the deepest first
        for kind in transfers.kinds:
            slot = transfers.width + kind.at
            pages = record.pages[slot]
            full = depth == record.end_page == end
            required = depth > end - kind.need if kind.positional else full
            if pages is not None and required:
                transfers.pages[slot].locks[pages] += 1
                transfer.locks.append((slot, pages))
                nodes.dirty[record.id] = record


@dataclass
class PinRecord:
    """A pin. held_pages: of its prefix that it locks. locked: (slot, pages) of each node."""

    tags: Tags
    held_pages: int = 0
    locked: list[tuple[int, Pages]] = field(default_factory=list)


class PinShadow:
    """pins: by number. moved: the pinned prefixes that this operation took, gave up or extended, as
    far as they are held.
    """

    def __init__(self, pages: list[PageShadow], nodes: NodeShadow) -> None:
        self.pages = pages
        self.nodes = nodes
        self.pins: dict[PinId, PinRecord] = {}
        self.moved: list[Tags] = []

    def pinned(self) -> dict[int, set[int]]:
        """By slot, the pages that pins lock."""
        result: dict[int, set[int]] = {}
        for pin in self.pins.values():
            for slot, pages in pin.locked:
                result.setdefault(slot, set()).update(pages.tolist())
        return result

    def flushed(self) -> None:
        """The tree is gone, and all locks with it."""
        for pin in self.pins.values():
            pin.held_pages, pin.locked = 0, []

    def hear(self, view: CoreView) -> None:
        """Files the pins that this operation took, gave up, or extended."""
        if not self.pins and not view.pins:
            return
        for number in [number for number in self.pins if number not in view.pins]:
            pin = self.pins.pop(number)
            self._add(pin, -1)
            self.moved.append(pin.tags[: pin.held_pages])
        for number, of_core in view.pins.items():
            if number not in self.pins:
                self.pins[number] = PinRecord(tags_of(of_core.key))
            pin = self.pins[number]
            if pin.held_pages == of_core.held_pages:
                continue
            self._add(pin, -1)
            pin.held_pages, pin.locked = of_core.held_pages, []
            for index, entries in enumerate(of_core.receipt.locked):
                for node, tier in entries:
                    pages = node.pages[tier][index]
                    if pages is not None:
                        pin.locked.append((tier * self.nodes.width + index, pages))
            self._add(pin, 1)
            self.moved.append(pin.tags[: pin.held_pages])

    def _add(self, pin: PinRecord, count: int) -> None:
        for slot, pages in pin.locked:
            shadow = self.pages[slot]
            shadow.locks[pages] += count
            for code in set(shadow.owner[pages].tolist()):
                record = self.nodes.by_id.get(code >> KIND_BITS)
                if record is not None:
                    self.nodes.dirty[record.id] = record
