"""Bounds of the memory of page numbers, and of the work of an operation."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from hicache.core.actions import Evicted, Prefill
from hicache.core.events import Flushed
from hicache.core.types import Pages
from hicache.core.view import CoreView
from invariants.base import Check
from invariants.shadow import story
from invariants.shadow.shadow import Shadow
from invariants.shadow.transfers import TransferRecord

PAGE_NUMBER_BYTES = 8


def owner_of(array: Any) -> Any:
    """The array, or other buffer, that owns the memory of an array."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def kept_bytes(arrays: Iterable[Pages]) -> int:
    """The bytes that these arrays keep in memory. The owner may also be an object of bytes."""
    owners = {id(owner): owner for owner in map(owner_of, arrays)}
    return sum(memoryview(owner).nbytes for owner in owners.values())


def arrays_of(view: CoreView) -> Iterator[Pages]:
    """Every array of page numbers of nodes, requests and transfers. The pools' own arrays have a
    fixed size and are left out."""
    for node in view.nodes():
        for side in node.pages:
            yield from (pages for pages in side if pages is not None)
    for request in view.requests.values():
        yield from request.tables
    for transfer in view.transfers.values():
        yield from transfer.on_loan
        for segment in transfer.segments:
            yield segment.source
            yield segment.target


def needed_bytes(shadow: Shadow) -> int:
    """The bytes that live pages need, by the shadow state: a number for each page of a node, for
    each place of an admitted request's tables, and for each page that an open action reads or
    writes. A pass needs its tables even if its request has gone. The targets of a transfer are one
    array; where a node of it was split, the halves have copies beside it, so targets count
    twice."""
    needed = sum(
        len(pages)
        for record in shadow.nodes.by_id.values()
        for pages in record.pages
        if pages is not None
    )
    needed += sum(len(table) for req in shadow.requests.by_id.values() for table in req.tables)
    for transfer in shadow.transfers.open.values():
        if not transfer.landed:
            needed += sum(len(move.source) + 2 * len(move.target) for move in transfer.moves)
        action = transfer.action
        if type(action) is Prefill:
            needed += sum(len(table) for table in action.tables)
            needed += sum(len(use.busy) for use in transfer.uses)
    return PAGE_NUMBER_BYTES * needed


SLACK = 1  # a node that came and went within one operation


class RssBound(Check):
    name = "RSS-BOUND"
    sentence = (
        "The page numbers that nodes, requests and actions in flight keep in memory, the whole "
        "array below each view included, take no more bytes than their live pages need; an "
        "eviction queue has at most twice as many entries as there ever were nodes."
    )

    def __init__(self) -> None:
        self._most = 0  # nodes

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        self._most = max(self._most, len(shadow.nodes.by_id))

    def audit(self, shadow: Shadow, view: CoreView) -> None:
        kept, needed = kept_bytes(arrays_of(view)), needed_bytes(shadow)
        if kept > needed:
            self.fail(
                f"page numbers in memory: expected at most {needed} bytes for "
                f"{len(shadow.nodes.by_id)} nodes, {len(shadow.requests.by_id)} requests and "
                f"{len(shadow.transfers.open)} actions in flight, found {kept}"
            )
        most = max(view.least_swept, 2 * (self._most + SLACK))
        for part in range(6 * shadow.width):
            entries = len(view.queue_entries(part))
            if entries > most:
                self.fail(
                    f"an eviction queue with {entries} entries, expected at most {most}: there "
                    f"were never more than {self._most} nodes"
                )


class WorkBound(Check):
    name = "WORK-BOUND"
    sentence = (
        "The nodes that an operation touches are bounded by those on the paths that it uses or "
        "copies, those added, removed or evicted, their neighbours, and those whose live distance "
        "changed."
    )

    def totals(self, shadow: Shadow, view: CoreView) -> None:
        if not shadow.history or type(shadow.event) is Flushed:
            return
        touched = len(view.touched)
        victims = sum(type(item) is Evicted for item in shadow.outcomes)
        moved = len(shadow.nodes.gone) + shadow.nodes.came
        turned = shadow.nodes.turned
        most = 8 + 3 * (victims + moved) + 2 * turned
        if touched <= most:
            return
        paths = self._paths(shadow, view)
        most += paths
        if touched > most:
            self.fail(
                f"{touched} nodes touched by {type(shadow.event).__name__}; expected at most "
                f"{most}: 8 + {paths} on paths + 3 * ({victims} victims + {moved} that came "
                f"or went) + 2 * {turned} that serve another distance now",
                *(story.node(number) for number in list(view.touched)[:1]),
            )

    def _paths(self, shadow: Shadow, view: CoreView) -> int:
        """Number of nodes on the paths of the operation's requests, transfers and pins."""
        requested = getattr(shadow.event, "request", -1)
        reqs = [
            shadow.requests.by_id.get(item) for item in {**view.touched_requests, requested: None}
        ]
        tags = [req.tags for req in (*reqs, *shadow.parted) if req is not None]
        if shadow.left is not None:
            tags.append(shadow.left)
        tags += shadow.pins.moved
        transfers = [
            item for item in (*shadow.transfers.fresh, shadow.answered) if item is not None
        ]
        # A pass keeps the locks of its request if that has left. It is on every node that these
        # were split into since.
        tags += (transfer.prompt for transfer in transfers if type(transfer.action) is Prefill)
        total = sum(sum(map(shadow.nodes.at.__contains__, tag.tolist())) for tag in tags)
        return total + sum(_locked(shadow, transfer) for transfer in transfers)


def _locked(shadow: Shadow, transfer: TransferRecord) -> int:
    """Number of nodes on the path of a transfer: when it began, or more if one of them was split
    since, because its locks are on both halves then."""
    now = len(shadow.nodes.path(transfer.nodes[0])) if transfer.nodes else 0
    return max(transfer.path, now)


CHECKS = (RssBound, WorkBound)
